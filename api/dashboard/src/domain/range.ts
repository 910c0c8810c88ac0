/** What a vertical axis spans. */

/** Differences below this part of the values are the noise of their rounding: a chart of it has no ticks to stand on. */
const NOISE = 1e-9;

/** From the least and the greatest value to the ends of the axis, with room around them; 0 to 1 where there are none. */
export function rangeOf(low: number | null, high: number | null, fromZero: boolean): [number, number] {
  if (low === null || high === null || !Number.isFinite(low) || !Number.isFinite(high)) return [0, 1];
  if (fromZero) return [0, high <= 0 ? 1 : high * 1.12];
  const size = Math.max(Math.abs(low), Math.abs(high));
  const spread = high - low;
  const room = (spread > NOISE * size ? spread : size || 1) * 0.08;
  return [low - room, high + room];
}

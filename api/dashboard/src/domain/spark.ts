/** The outline of a small curve: SVG path text from values, spikes included. */

import type { Point } from '../wire/series';

export interface Spark {
  line: string;
  band: string;
}

export function sparkPath(points: readonly Point[], width: number, height: number): Spark | null {
  const finite = points.filter((p) => Number.isFinite(p.value) && Number.isFinite(p.min) && Number.isFinite(p.max));
  if (finite.length < 2) return null;
  const low = Math.min(...finite.map((p) => p.min));
  const high = Math.max(...finite.map((p) => p.max));
  const first = (finite[0] as Point).step;
  const span = (finite.at(-1) as Point).step - first || 1;
  const x = (p: Point): string => (1 + ((p.step - first) / span) * (width - 2)).toFixed(1);
  const y = (v: number): string => (height - 1.5 - ((v - low) / (high - low || 1)) * (height - 3)).toFixed(1);
  const along = (pick: (p: Point) => number, list: readonly Point[]): string => list.map((p) => `${x(p)} ${y(pick(p))}`).join('L');
  const upper = along((p) => p.max, finite);
  const lower = along((p) => p.min, [...finite].reverse());
  return { line: `M${along((p) => p.value, finite)}`, band: `M${upper}L${lower}Z` };
}

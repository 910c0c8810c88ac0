/** A smoothed line to lay over the raw one, never instead of it. */

/**
 * Exponential moving average with bias correction (as Adam's moments), so that it starts at the first value and not at zero.
 * `weight` in [0, 1): 0 returns the values. Values that are not finite are left out and do not poison what follows.
 */
export function smooth(values: readonly number[], weight: number): number[] {
  let mean = 0;
  let norm = 0;
  return values.map((value) => {
    if (!Number.isFinite(value)) return value;
    mean = weight * mean + (1 - weight) * value;
    norm = weight * norm + (1 - weight);
    return mean / norm;
  });
}

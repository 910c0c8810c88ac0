/** Fewer points that hide nothing: each bucket keeps its smallest, its largest and its last value and how many it stands for. */

import type { Point } from '../wire/series';

/**
 * At most `limit` points. The newest quarter stays as it is, because that is where one looks while a job runs; the others
 * are merged over equal widths of steps, so that thinning again and again leaves the beginning no coarser than the middle.
 */
export function thin(points: readonly Point[], limit: number): Point[] {
  if (points.length <= limit) return [...points];
  const fresh = Math.floor(limit / 4);
  const old = points.slice(0, points.length - fresh);
  const first = (old[0] as Point).step;
  const width = ((old.at(-1) as Point).step - first + 1) / (limit - fresh);
  const buckets = new Map<number, Point[]>();
  for (const point of old) {
    const at = Math.floor((point.step - first) / width);
    const bucket = buckets.get(at);
    if (bucket) bucket.push(point);
    else buckets.set(at, [point]);
  }
  return [...[...buckets.values()].map(merged), ...points.slice(points.length - fresh)];
}

/** NaN has no order: a bucket's extremes are those of its numbers, and NaN only where it has no number. */
export function merged(points: readonly Point[]): Point {
  const last = points[points.length - 1] as Point;
  let min = Infinity;
  let max = -Infinity;
  let count = 0;
  for (const point of points) {
    if (point.min < min) min = point.min;
    if (point.max > max) max = point.max;
    count += point.count;
  }
  if (min > max) min = max = NaN;
  return { ...last, min, max, count };
}

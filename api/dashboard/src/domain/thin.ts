/** Fewer points that hide nothing: each bucket keeps its smallest, its largest and its last value and how many it stands for. */

import type { Point } from '../wire/series';

/** At most `limit` points. The newest quarter stays as it is, because that is where one looks while a job runs. */
export function thin(points: readonly Point[], limit: number): Point[] {
  if (points.length <= limit) return [...points];
  const fresh = Math.floor(limit / 4);
  const old = points.slice(0, points.length - fresh);
  const buckets = limit - fresh;
  const result: Point[] = [];
  for (let bucket = 0; bucket < buckets; bucket += 1) {
    const from = Math.floor((bucket * old.length) / buckets);
    const to = Math.floor(((bucket + 1) * old.length) / buckets);
    if (to > from) result.push(merged(old.slice(from, to)));
  }
  return [...result, ...points.slice(points.length - fresh)];
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

/**
 * A series that is loaded once and then grows by the stream, with no gap and no duplicate.
 *
 * Invariants: points are sorted by step and each step stands once; where two generations wrote the same step (a rollback),
 * the newer one wins; a bucket (count > 1) already stands for the steps between the point before it and itself.
 */

import type { Point } from '../wire/series';
import { thin } from './thin';

export interface Series {
  name: string;
  rank: number | null;
  unit: string | null;
  /** Steps that the series has in truth; `points` may show fewer. */
  total: number;
  points: Point[];
}

/** Points kept in the page; twice as many are allowed before the next thinning, so that it is rare. */
export const KEPT_POINTS = 2_000;
/** Of a rank there are many series and one is looked at. */
export const KEPT_RANK_POINTS = 300;

export const keyOf = (name: string, rank: number | null): string => (rank === null ? name : `${name}#${rank}`);

export const emptySeries = (name: string, rank: number | null): Series => ({ name, rank, unit: null, total: 0, points: [] });

/** Index of the first point at `step` or later. */
export function indexAt(points: readonly Point[], step: number): number {
  let low = 0;
  let high = points.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((points[middle] as Point).step < step) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Adds one sample of the stream in place; false where it was known already. */
export function append(series: Series, point: Point): boolean {
  const { points } = series;
  const index = indexAt(points, point.step);
  const there = points[index];
  if (there === undefined) points.push(point);
  else if (there.step === point.step) {
    if (there.generation >= point.generation) return false;
    // The step was made again after a rollback: it is the same step, so the total stays.
    points[index] = there.count > 1 ? { ...point, count: there.count, ...widened(there, point) } : point;
    return true;
  } else if (there.count > 1 && there.generation >= point.generation) return false;
  else points.splice(index, 0, point);
  series.total += 1;
  const kept = series.rank === null ? KEPT_POINTS : KEPT_RANK_POINTS;
  if (points.length > 2 * kept) series.points = thin(points, kept);
  return true;
}

function widened(a: Point, b: Point): { min: number; max: number } {
  return { min: Math.min(a.min, b.min), max: Math.max(a.max, b.max) };
}

/**
 * A freshly fetched series, with what the stream brought in the meantime on top. `live` may hold points that the answer
 * has not (it was computed before they arrived) and points that it has; both come out once.
 */
export function adopt(fetched: Series, live: Series | undefined): Series {
  const result: Series = { ...fetched, points: [...fetched.points] };
  if (!live) return result;
  const lastStep = result.points.at(-1)?.step ?? -Infinity;
  for (const point of live.points) {
    if (point.step > lastStep || point.count === 1) append(result, point);
  }
  result.total = Math.max(result.total, fetched.total);
  return result;
}

/** The point in force at `step`: the one at it, or the bucket that contains it. */
export function pointAt(series: Series | undefined, step: number): Point | undefined {
  if (!series?.points.length) return undefined;
  const index = indexAt(series.points, step);
  return series.points[Math.min(index, series.points.length - 1)];
}

export const lastPoint = (series: Series | undefined): Point | undefined => series?.points.at(-1);

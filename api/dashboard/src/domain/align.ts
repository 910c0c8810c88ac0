/** Several series on one axis of steps, as a chart library wants them: columns, null where there is nothing to draw. */

import { pointAt, type Series } from './series';
import type { Point } from '../wire/series';

export type Column = (number | null)[];

const drawable = (value: number | undefined): number | null => (value !== undefined && Number.isFinite(value) ? value : null);

/** All steps at which any of the series has a point, ascending. */
export function stepsOf(list: readonly (Series | undefined)[]): number[] {
  const filled = list.filter((s): s is Series => s !== undefined && s.points.length > 0);
  if (filled.length === 1) return (filled[0] as Series).points.map((p) => p.step);
  return [...new Set(filled.flatMap((s) => s.points.map((p) => p.step)))].sort((a, b) => a - b);
}

/** Values exactly at the steps; a gap elsewhere. */
export function columnAt(series: Series | undefined, steps: readonly number[], pick: (point: Point) => number): Column {
  const byStep = new Map(series?.points.map((p) => [p.step, p] as const) ?? []);
  return steps.map((step) => drawable(pickFrom(byStep.get(step), pick)));
}

/** Values in force at the steps: buckets of another size are carried, so that stacked areas have no holes. */
export function carriedColumn(series: Series | undefined, steps: readonly number[]): number[] {
  return steps.map((step) => pointAt(series, step)?.value ?? NaN);
}

const pickFrom = (point: Point | undefined, pick: (p: Point) => number): number | undefined => (point ? pick(point) : undefined);

/** Steps of points that are not numbers: a loss that became NaN must be seen. */
export const brokenSteps = (series: Series | undefined): number[] =>
  (series?.points ?? []).filter((p) => !Number.isFinite(p.value)).map((p) => p.step);

/** "1 of 12 shown": how many samples a drawn point stands for, or null where all are drawn. */
export function shownText(series: Series | undefined): string | null {
  if (!series || series.points.length === 0) return null;
  const made = samplesMade(series);
  if (made <= series.points.length) return null;
  const ratio = made / series.points.length;
  if (ratio < 1.95) return `${series.points.length} of ${made} shown, extremes kept`;
  return `1 of ${ratio < 9.5 ? ratio.toFixed(1).replace('.0', '') : Math.round(ratio)} shown, extremes kept`;
}

/** The group is measured at every step; of a long run the service itself keeps fewer of those, so that its count is of what it kept. */
function samplesMade({ rank, points, total }: Series): number {
  const [first, last] = [points[0]?.step ?? 0, points.at(-1)?.step ?? 0];
  return rank === null && points.some((point) => point.count > 1) ? Math.max(total, last - first + 1) : total;
}

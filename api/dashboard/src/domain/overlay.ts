/** Curves of several jobs on one horizontal axis: steps, tokens seen, or seconds since their first point. */

import type { JobSpec } from '../wire/job';
import type { Point } from '../wire/series';
import type { Column } from './align';

export const AXES = ['step', 'tokens', 'time'] as const;
export type OverlayAxis = (typeof AXES)[number];

export interface Curve {
  jobId: string;
  spec: JobSpec;
  points: readonly Point[];
}

/** Where a point stands on the axis. */
export function placeOf(curve: Curve, point: Point, axis: OverlayAxis): number {
  if (axis === 'step') return point.step;
  if (axis === 'time') return (Date.parse(point.at) - Date.parse(curve.points[0]?.at ?? point.at)) / 1000;
  const { batch_size = 1, seq_len = 1 } = curve.spec.training ?? {};
  return point.step * batch_size * seq_len;
}

/** What of a point is drawn: its last value, and the extremes of the steps that it stands for. */
export const DRAWN = ['max', 'min', 'value'] as const;

/** One column of places for all curves, and for each curve its columns in the order of DRAWN; of points at one place the last counts. */
export function overlay(curves: readonly Curve[], axis: OverlayAxis): { xs: number[]; columns: Column[][] } {
  const byPlace = curves.map((curve) => new Map(curve.points.map((p) => [placeOf(curve, p, axis), p] as const)));
  const xs = [...new Set(byPlace.flatMap((one) => [...one.keys()]))].sort((a, b) => a - b);
  const columns = byPlace.map((one) => DRAWN.map((of) => xs.map((x) => finite(one.get(x)?.[of]))));
  return { xs, columns };
}

const finite = (value: number | undefined): number | null => (value !== undefined && Number.isFinite(value) ? value : null);

/** The value of a curve at a place or before it; null before its first. */
export function valueAtPlace(curve: Curve, place: number | null, axis: OverlayAxis): number | null {
  if (place === null) return curve.points.at(-1)?.value ?? null;
  const last = curve.points.findLast((point) => placeOf(curve, point, axis) <= place);
  return last ? last.value : null;
}

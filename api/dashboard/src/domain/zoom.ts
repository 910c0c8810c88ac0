/** The steps in view: the whole job, or the window that was drawn with the mouse and stands in the address as `steps=120-180`. */

import type { Point } from '../wire/series';

export interface StepWindow {
  from: number;
  to: number;
}

export function parseWindow(value: string | undefined): StepWindow | null {
  const match = /^(\d+)-(\d+)$/.exec(value ?? '');
  if (!match) return null;
  const [from, to] = [Number(match[1]), Number(match[2])];
  return to > from ? { from, to } : null;
}

export const windowText = (window: StepWindow | null): string => (window ? `${window.from}-${window.to}` : '');

/** Whole steps, at least two of them. */
export function roundWindow(from: number, to: number): StepWindow | null {
  const low = Math.max(0, Math.floor(Math.min(from, to)));
  const high = Math.ceil(Math.max(from, to));
  return high - low >= 1 ? { from: low, to: high } : null;
}

const POINTS_IN_VIEW = 800;
const MOST_POINTS = 5_000;
/** Farther apart than the samples that a long run keeps. */
const LEAST_AROUND = 1_000;

/** The window and what lies beside it, so that curves come in and leave: of a single sample nothing could be drawn. */
export function aroundOf({ from, to }: StepWindow): StepWindow {
  const beside = Math.max(to - from, LEAST_AROUND);
  return { from: Math.max(0, from - beside), to: to + beside };
}

/** How many points to ask for around the window so that it has enough of them; null where those at hand are each a single step. */
export function detailPoints(points: readonly Point[], window: StepWindow): number | null {
  const inside = points.filter((point) => point.step >= window.from && point.step - point.count < window.to);
  if (!inside.some((point) => point.count > 1)) return null;
  const { from, to } = aroundOf(window);
  return Math.min(MOST_POINTS, Math.ceil((POINTS_IN_VIEW * (to - from)) / (window.to - window.from)));
}

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
/** The API cuts a series at its start only, so a window far from the end of a long run asks for much that is not shown. */
const MOST_POINTS = 5_000;

/** How many points to ask for so that the window has enough of them; null where those at hand are each a single step. */
export function detailPoints(points: readonly Point[], window: StepWindow): number | null {
  const inside = points.filter((point) => point.step >= window.from && point.step - point.count < window.to);
  if (!inside.some((point) => point.count > 1)) return null;
  const last = points.at(-1)?.step ?? window.to;
  const share = (window.to - window.from) / Math.max(1, last - window.from);
  return Math.min(MOST_POINTS, Math.max(POINTS_IN_VIEW, Math.ceil(POINTS_IN_VIEW / share)));
}

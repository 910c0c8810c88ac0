/** From one step of a chart to another by keys. */

import type { Point } from '../wire/series';
import { indexAt } from './series';
import type { StepWindow } from './zoom';

/** The step that lies `by` drawn points further inside the window; from nowhere, its first or last. */
export function walked(points: readonly Point[], window: StepWindow, from: number | null, by: number): number | null {
  const inside = points.filter((point) => point.step >= window.from && point.step <= window.to);
  if (!inside.length) return null;
  const at = from === null ? (by < 0 ? inside.length : -1) : indexAt(inside, from);
  return inside[Math.min(inside.length - 1, Math.max(0, at + by))]?.step ?? null;
}

/** The steps in view: the whole job, or the window that was drawn with the mouse and stands in the address as `steps=120-180`. */

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

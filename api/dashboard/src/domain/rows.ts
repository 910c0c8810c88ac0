/** Which rows of a long list exist in the document: those in view and a few around them. */

export interface RowWindow {
  first: number;
  /** One past the last. */
  end: number;
  above_px: number;
  below_px: number;
}

export function rowWindow(view: { top: number; height: number; row: number; count: number; spare: number }): RowWindow {
  const { top, height, row, count, spare } = view;
  const first = Math.min(Math.max(0, count - 1), Math.max(0, Math.floor(top / row) - spare));
  const end = Math.min(count, Math.max(first, Math.ceil((top + height) / row) + spare));
  return { first, end, above_px: first * row, below_px: (count - end) * row };
}

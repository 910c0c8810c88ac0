/** Which jobs are ticked for an action on several. */

import { signal } from '@preact/signals';

export const chosen = signal<ReadonlySet<string>>(new Set());

export function choose(id: string, on: boolean): void {
  const next = new Set(chosen.value);
  if (on) next.add(id);
  else next.delete(id);
  chosen.value = next;
}

export function chooseAll(ids: readonly string[]): void {
  chosen.value = new Set(ids);
}

/** Short words about what an action did, read out by screen readers and gone by themselves. */

import { signal } from '@preact/signals';
import { asProblem } from '../wire/problem';

export interface Notice {
  id: number;
  tone: 'good' | 'bad';
  text: string;
}

export const notices = signal<readonly Notice[]>([]);
let next = 1;

export function say(text: string, tone: Notice['tone'] = 'good'): void {
  const notice = { id: next++, tone, text };
  notices.value = [...notices.value.slice(-3), notice];
  setTimeout(() => dismiss(notice.id), tone === 'bad' ? 12_000 : 5_000);
}

export function sayProblem(what: string, error: unknown): void {
  const problem = asProblem(error);
  const fields = problem.errors.map((e) => `${e.field}: ${e.problem}`).join('; ');
  say(`${what}: ${fields || problem.message}`, 'bad');
}

export function dismiss(id: number): void {
  notices.value = notices.value.filter((notice) => notice.id !== id);
}

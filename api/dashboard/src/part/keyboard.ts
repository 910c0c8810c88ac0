/** Keys of the whole page. A letter never acts while one types. */

import { signal } from '@preact/signals';
import { hashOf } from '../domain/route';
import { go } from '../store/place';
import { toggleTheme } from '../store/theme';

export const helpOpen = signal(false);

export const SHORTCUTS: readonly (readonly [string, string])[] = [
  ['/', 'search'],
  ['g j', 'jobs'],
  ['g n', 'new job'],
  ['g p', 'plan'],
  ['g c', 'cluster'],
  ['g m', 'compare'],
  ['t', 'light or dark'],
  ['← →', 'read the charts of a job step by step, with Shift ten'],
  ['Esc', 'leave a field, whole range of a chart'],
  ['?', 'this list'],
];

const PLACES = { j: 'jobs', n: 'submit', p: 'plan', c: 'cluster', m: 'compare' } as const;
let goPressed = 0;

export function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

function onKey(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (isTyping(event.target)) {
    if (event.key === 'Escape') (event.target as HTMLElement).blur();
    return;
  }
  if (document.querySelector('dialog[open]')) return;
  const jump = performance.now() - goPressed < 1200 ? PLACES[event.key as keyof typeof PLACES] : undefined;
  goPressed = event.key === 'g' ? performance.now() : 0;
  if (jump) go(hashOf({ page: jump }));
  else if (event.key === '?') helpOpen.value = true;
  else if (event.key === 't') toggleTheme();
  else if (event.key === '/') focusSearch(event);
}

function focusSearch(event: KeyboardEvent): void {
  const field = document.querySelector<HTMLInputElement>('input[type="search"]');
  if (field) {
    event.preventDefault();
    field.focus();
    field.select();
  } else go(hashOf({ page: 'jobs' }, { focus: 'search' }));
}

document.addEventListener('keydown', onKey);

/** Where the reader is; the address is the only copy. */

import { computed, signal } from '@preact/signals';
import { hashOf, parsePlace, type Route, type RouteQuery } from '../domain/route';

const hash = signal(location.hash);
window.addEventListener('hashchange', () => (hash.value = location.hash));

export const place = computed(() => parsePlace(hash.value));

export function go(to: string): void {
  location.hash = to;
}

/** Changes part of the query without a new entry in the history, as typing into a filter should. */
export function setQuery(change: Readonly<Record<string, string | null>>): void {
  const { route, query } = parsePlace(location.hash);
  replaceHash(hashOf(route, { ...query, ...change }));
}

export function replaceHash(to: string): void {
  history.replaceState(null, '', to);
  hash.value = to;
}

export const here = (): { route: Route; query: RouteQuery } => place.value;

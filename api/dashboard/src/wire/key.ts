/** The API key of this tab, where the service asks for one. It ends with the tab and is sent to this origin only. */

import { signal } from '@preact/signals';

const NAME = 'elastane.key';

export const apiKey = signal(sessionStorage.getItem(NAME) ?? '');

export function useKey(key: string): void {
  apiKey.value = key.trim();
  if (apiKey.value) sessionStorage.setItem(NAME, apiKey.value);
  else sessionStorage.removeItem(NAME);
}

export const authorization = (): Record<string, string> => (apiKey.peek() ? { authorization: `Bearer ${apiKey.peek()}` } : {});

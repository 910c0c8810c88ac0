/** Light, dark, or as the machine has it. */

import { signal } from '@preact/signals';

export type Theme = 'system' | 'light' | 'dark';
const KEY = 'elastane.theme';
const dark = matchMedia('(prefers-color-scheme: dark)');

function stored(): Theme {
  const value = localStorage.getItem(KEY);
  return value === 'light' || value === 'dark' ? value : 'system';
}

export const theme = signal<Theme>(stored());
/** Grows when colours change, so that canvases are drawn again. */
export const themeVersion = signal(0);

function apply(): void {
  const root = document.documentElement;
  if (theme.value === 'system') root.removeAttribute('data-theme');
  else root.setAttribute('data-theme', theme.value);
  themeVersion.value += 1;
}

export const isDark = (): boolean => (theme.value === 'system' ? dark.matches : theme.value === 'dark');

export function toggleTheme(): void {
  const next: Theme = isDark() ? 'light' : 'dark';
  // Back to following the machine as soon as that says the same.
  theme.value = (next === 'dark') === dark.matches ? 'system' : next;
  if (theme.value === 'system') localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, theme.value);
  apply();
}

dark.addEventListener('change', () => (themeVersion.value += 1));
apply();

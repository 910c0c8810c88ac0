/** The present second, for ages and staleness. It stands still while nobody looks. */

import { signal } from '@preact/signals';

export const now = signal(Date.now());

setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) now.value = Date.now();
});

/** The step under the pointer, shared by all charts, so that every one of them reads its values there. */

import { signal } from '@preact/signals';

export const cursorStep = signal<number | null>(null);
/** The step that the arrow keys came to: read like one under the pointer, while nothing is. */
export const walkedStep = signal<number | null>(null);
/** A step that another part of the page points at: a line of the timeline under the pointer. */
export const pointedStep = signal<number | null>(null);

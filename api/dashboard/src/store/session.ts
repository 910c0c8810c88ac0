/** The session of this browser, as the service knows it. */

import { signal } from '@preact/signals';
import type { Session } from '../wire/session';
import { getSession, signIn, signOut } from '../wire/rest';

/** Null until the service has answered. */
export const session = signal<Session | null>(null);

export async function lookWhoIsIn(): Promise<void> {
  session.value = await getSession().catch(() => session.peek());
}

export async function enter(key: string): Promise<void> {
  session.value = await signIn(key.trim());
}

export async function leave(): Promise<void> {
  await signOut();
  session.value = null;
}

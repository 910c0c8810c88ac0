/** The session of this browser, as the service knows it. */

import { signal } from '@preact/signals';
import { denial } from '../domain/scope';
import type { Scope, Session } from '../wire/session';
import { getSession, signIn, signOut } from '../wire/rest';

/** Null until the service has answered. */
export const session = signal<Session | null>(null);

/** Settles when the service has said who the reader is, or did not answer. */
export const known: Promise<void> = getSession().then(
  (found) => void (session.value = found),
  () => undefined,
);

/** Why the reader may not do what asks for this scope; null where they may. */
export const denied = (scope: Scope): string | null => denial(session.value, scope);

export async function enter(key: string): Promise<void> {
  session.value = await signIn(key.trim());
}

export async function leave(): Promise<void> {
  await signOut();
  session.value = null;
}

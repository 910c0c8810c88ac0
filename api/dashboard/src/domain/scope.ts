/** What the reader's key permits. Each scope includes the ones before it. */

import { SCOPES, type Scope, type Session } from '../wire/session';

/** Why the reader may not; null where they may, and as long as the service has not said who they are. */
export function denial(session: Session | null, wanted: Scope): string | null {
  if (session === null || !session.key_asked) return null;
  if (session.name === null) return `Not permitted: sign in with a key that has the scope ${wanted}.`;
  const level = Math.max(...session.scopes.map((scope) => SCOPES.indexOf(scope)), -1);
  if (level >= SCOPES.indexOf(wanted)) return null;
  return `Not permitted: the key ${session.name} has the scope ${session.scopes.join(', ') || 'none'}, this asks for ${wanted}.`;
}

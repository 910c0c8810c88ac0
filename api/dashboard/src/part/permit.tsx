/** Actions for those who may, and for the others the reason why not. */

import type { ComponentChildren } from 'preact';
import { denied } from '../store/session';
import type { Scope } from '../wire/session';

export function Permit({ scope = 'submit', children }: { scope?: Scope; children: ComponentChildren }) {
  const why = denied(scope);
  return why === null ? <>{children}</> : <span class="denied">{why}</span>;
}

/** Who the reader is. The key itself stands in a cookie that no script can read. */

export const SCOPES = ['read', 'submit', 'admin'] as const;
export type Scope = (typeof SCOPES)[number];

export interface Session {
  /** False: everybody may do everything here. */
  key_asked: boolean;
  /** Of the key; null for nobody. */
  name: string | null;
  scopes: Scope[];
}

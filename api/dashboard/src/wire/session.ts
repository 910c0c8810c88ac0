/** Who the reader is. The key itself stands in a cookie that no script can read. */

export interface Session {
  /** False: everybody may do everything here. */
  key_asked: boolean;
  /** Of the key; null for nobody. */
  name: string | null;
  scopes: ('read' | 'submit' | 'admin')[];
}

/** A number with its unit, the unit quieter than the number. */

import type { Quantity } from '../domain/format';

export function Amount({ of }: { of: Quantity }) {
  return (
    <span class="amount">
      {of.value}
      {of.unit && <small> {of.unit}</small>}
    </span>
  );
}

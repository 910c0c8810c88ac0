/** A state in a word and a colour, never a colour alone. */

import type { JobState } from '../wire/job';

export function StateBadge({ state }: { state: JobState | string }) {
  return (
    <span class={`badge state-${state}`}>
      <i aria-hidden="true" />
      {state}
    </span>
  );
}

/** How far, as a bar; the numbers stand beside it. */

import type { JobState } from '../wire/job';

export function ProgressBar({ fraction, state, label }: { fraction: number; state: JobState; label: string }) {
  return (
    <div
      class={`progress state-${state}`}
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.floor(fraction * 100)}
    >
      <div style={{ width: `${(fraction * 100).toFixed(2)}%` }} />
    </div>
  );
}

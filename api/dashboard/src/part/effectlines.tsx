/** The effect of an action as lines of a dialog. */

import type { Effect } from '../domain/effect';

export function EffectLines({ lines }: { lines: readonly Effect[] }) {
  return (
    <dl class="effect" aria-live="polite">
      {lines.map((line) => (
        <div key={line.what}>
          <dt>{line.what}</dt>
          <dd>
            {line.from === undefined ? (
              line.to
            ) : (
              <>
                {line.from} → <b>{line.to}</b>
              </>
            )}
          </dd>
        </div>
      ))}
    </dl>
  );
}

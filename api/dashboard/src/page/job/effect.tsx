/** The effect of an action as lines of a dialog. */

import { useSignal, type ReadonlySignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { Effect, Known } from '../../domain/effect';
import { explainJob, getCheckpoints, getCluster } from '../../wire/rest';

/** What the service says of the job and its neighbours when the dialog opens; null where it does not answer. */
export function useKnown(jobId: string): ReadonlySignal<Known> {
  const known = useSignal<Known>({ why: null, checkpoints: null, pending: null });
  useEffect(() => {
    const learn = (part: Partial<Known>): void => void (known.value = { ...known.peek(), ...part });
    const nothing = (): void => undefined;
    explainJob(jobId).then((why) => learn({ why }), nothing);
    getCheckpoints(jobId).then((answer) => learn({ checkpoints: answer.items }), nothing);
    getCluster().then((cluster) => learn({ pending: cluster.pending }), nothing);
  }, [jobId]);
  return known;
}

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

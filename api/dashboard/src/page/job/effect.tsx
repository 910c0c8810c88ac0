/** What is found out before the effect of an action is said. */

import { useSignal, type ReadonlySignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { Known } from '../../domain/effect';
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

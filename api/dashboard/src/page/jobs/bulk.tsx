/** One action on all ticked jobs, each asked by itself; what is refused is said and changes nothing for the others. */

import { useSignal } from '@preact/signals';
import { effectOfMany } from '../../domain/effect';
import { capital } from '../../domain/format';
import { hashOf } from '../../domain/route';
import { Dialog } from '../../part/dialog';
import { EffectLines } from '../../part/effectlines';
import { Permit } from '../../part/permit';
import type { JobList } from '../../store/joblist';
import { say, sayProblem } from '../../store/notice';
import { isEnded, titleOf, type Job } from '../../wire/job';
import { actOnJob, type Verb } from '../../wire/rest';
import { chooseAll, chosen } from './selection';

export function BulkBar({ list }: { list: JobList }) {
  const asking = useSignal<Verb | null>(null);
  const busy = useSignal(false);
  const jobs = list.all.value.filter((job) => chosen.value.has(job.id) && !isEnded(job.state));
  if (chosen.value.size === 0) return null;
  const run = async (verb: Verb): Promise<void> => {
    busy.value = true;
    await askAll(jobs, verb);
    busy.value = false;
    asking.value = null;
    chooseAll([]);
  };
  return (
    <div class="bulk" role="region" aria-label="Chosen jobs">
      <b>{chosen.value.size} chosen</b>
      <span>{jobs.length} not ended</span>
      <Permit>
        {(['pause', 'resume', 'cancel'] as const).map((verb) => (
          <button key={verb} type="button" class="button" disabled={!jobs.length} onClick={() => (asking.value = verb)}>
            {capital(verb)}
          </button>
        ))}
      </Permit>
      <a class="button" href={hashOf({ page: 'compare' }, { jobs: [...chosen.value].join(',') })}>
        Compare
      </a>
      <button type="button" class="button quiet" onClick={() => chooseAll([])}>
        Choose none
      </button>
      {asking.value && (
        <Dialog
          title={`${capital(asking.value)} ${jobs.length} job${jobs.length === 1 ? '' : 's'}?`}
          confirm={capital(asking.value)}
          danger={asking.value === 'cancel'}
          busy={busy.value}
          onConfirm={() => void run(asking.value as Verb)}
          onClose={() => (asking.value = null)}
        >
          <ul class="names">
            {jobs.slice(0, 12).map((job) => (
              <li key={job.id}>
                {titleOf(job)} <small>{job.state}</small>
              </li>
            ))}
            {jobs.length > 12 && <li>and {jobs.length - 12} more</li>}
          </ul>
          <EffectLines lines={effectOfMany(jobs, asking.value)} />
        </Dialog>
      )}
    </div>
  );
}

async function askAll(jobs: readonly Job[], verb: Verb): Promise<void> {
  let accepted = 0;
  for (const job of jobs) {
    try {
      await actOnJob(job.id, verb);
      accepted += 1;
    } catch (error) {
      sayProblem(`${titleOf(job)}: ${verb}`, error);
    }
  }
  if (accepted) say(`${verb}: accepted for ${accepted} of ${jobs.length}`);
}

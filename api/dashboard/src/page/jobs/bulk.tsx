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

const MOST_NAMED = 12;

export function BulkBar({ list }: { list: JobList }) {
  const asking = useSignal<Verb | null>(null);
  const jobs = list.all.value.filter((job) => chosen.value.has(job.id) && !isEnded(job.state));
  if (chosen.value.size === 0) return null;
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
      {asking.value && <BulkDialog verb={asking.value} jobs={jobs} close={() => (asking.value = null)} />}
    </div>
  );
}

function BulkDialog({ verb, jobs, close }: { verb: Verb; jobs: readonly Job[]; close(): void }) {
  const busy = useSignal(false);
  const run = async (): Promise<void> => {
    busy.value = true;
    await askAll(jobs, verb);
    close();
    chooseAll([]);
  };
  return (
    <Dialog
      title={`${capital(verb)} ${jobs.length} job${jobs.length === 1 ? '' : 's'}?`}
      confirm={capital(verb)}
      danger={verb === 'cancel'}
      busy={busy.value}
      onConfirm={() => void run()}
      onClose={close}
    >
      <ul class="names">
        {jobs.slice(0, MOST_NAMED).map((job) => (
          <li key={job.id}>
            {titleOf(job)} <small>{job.state}</small>
          </li>
        ))}
        {jobs.length > MOST_NAMED && <li>and {jobs.length - MOST_NAMED} more</li>}
      </ul>
      <EffectLines lines={effectOfMany(jobs, verb)} />
    </Dialog>
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

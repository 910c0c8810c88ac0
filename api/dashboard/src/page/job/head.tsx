/** Name, state, the reason in words, and the actions that are legal now. */

import { useSignal } from '@preact/signals';
import { capital } from '../../domain/format';
import { modelLabel } from '../../domain/jobfilter';
import { hashOf } from '../../domain/route';
import { StateBadge } from '../../part/badge';
import { Dialog } from '../../part/dialog';
import { say, sayProblem } from '../../store/notice';
import { isEnded, titleOf, type Job } from '../../wire/job';
import { actOnJob, type Verb } from '../../wire/rest';
import { ScaleDialog } from './scale';

type Asked = Verb | 'scale' | null;

const EFFECT: Record<Verb, string> = {
  pause: 'The workers finish their step, save a checkpoint and give their slots back. Resume goes on from there.',
  resume: 'The job waits for slots and goes on from its newest checkpoint.',
  cancel: 'The job ends for good and gives its slots back. Its checkpoints and its history stay.',
};

export function JobHead({ job }: { job: Job }) {
  const asked = useSignal<Asked>(null);
  const close = (): void => void (asked.value = null);
  return (
    <header class="job-head">
      <div>
        <p class="crumbs">
          <a href={hashOf({ page: 'jobs' })}>Jobs</a> <span aria-hidden="true">/</span> <code>{job.id}</code>
        </p>
        <h1 id="job-title">
          {titleOf(job)} <StateBadge state={job.state} />
        </h1>
        <p class="job-sub">
          {modelLabel(job.spec.model)} · {String(job.spec.engine ?? 'zero')} stage {job.stage ?? '–'} · priority {job.priority}
          {job.reason && <span class="reason"> · {job.reason}</span>}
        </p>
      </div>
      <div class="actions" role="group" aria-label="Actions">
        {legal(job).map((action) => (
          <button key={action} type="button" class={action === 'cancel' ? 'button danger-text' : 'button'} onClick={() => (asked.value = action)}>
            {capital(action)}
          </button>
        ))}
        <a class="button" href={hashOf({ page: 'submit' }, { from: job.id })}>
          Run again…
        </a>
      </div>
      {asked.value === 'scale' && <ScaleDialog job={job} onClose={close} />}
      {asked.value !== null && asked.value !== 'scale' && <VerbDialog job={job} verb={asked.value} onClose={close} />}
    </header>
  );
}

function legal(job: Job): Exclude<Asked, null>[] {
  if (isEnded(job.state) || job.state === 'cancelling') return [];
  const pause = job.state === 'paused' || job.state === 'pausing' ? 'resume' : 'pause';
  return ['scale', pause, 'cancel'];
}

function VerbDialog({ job, verb, onClose }: { job: Job; verb: Verb; onClose(): void }) {
  const busy = useSignal(false);
  const run = async (): Promise<void> => {
    busy.value = true;
    try {
      await actOnJob(job.id, verb);
      say(`${verb} accepted`);
    } catch (error) {
      sayProblem(`${verb} was refused`, error);
    }
    onClose();
  };
  return (
    <Dialog title={`${capital(verb)} ${titleOf(job)}?`} confirm={`${capital(verb)} the job`} danger={verb === 'cancel'} busy={busy.value} onConfirm={() => void run()} onClose={onClose}>
      <p>{EFFECT[verb]}</p>
    </Dialog>
  );
}

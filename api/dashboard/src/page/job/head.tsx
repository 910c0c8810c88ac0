/** Name, state, the reason in words, and the actions that are legal now. */

import { useSignal } from '@preact/signals';
import { effectOfDelete, effectOfEnd, effectOfResume, type Effect, type Known } from '../../domain/effect';
import { capital } from '../../domain/format';
import { modelLabel } from '../../domain/jobfilter';
import { hashOf } from '../../domain/route';
import { StateBadge } from '../../part/badge';
import { Dialog } from '../../part/dialog';
import { EffectLines } from '../../part/effectlines';
import { Permit } from '../../part/permit';
import type { JobView } from '../../store/jobview';
import { say, sayProblem } from '../../store/notice';
import { go } from '../../store/place';
import { isEnded, titleOf, type Job } from '../../wire/job';
import { actOnJob, deleteJob, type Verb } from '../../wire/rest';
import { useKnown } from './effect';
import { ScaleDialog } from './scale';

type Action = Verb | 'delete';
type Asked = Action | 'scale' | null;

const EFFECT: Record<Action, string> = {
  pause: 'The workers finish their step, save a checkpoint and give their slots back. Resume goes on from there.',
  resume: 'The job waits for slots and goes on from its newest checkpoint.',
  cancel: 'The job ends for good and gives its slots back. Its checkpoints and its history stay.',
  delete: 'The job, its history and its checkpoints are removed. Nothing brings them back.',
};

export function JobHead({ job, view }: { job: Job; view: JobView }) {
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
        <Permit>
          {legal(job).map((action) => (
            <button key={action} type="button" class={action === 'cancel' || action === 'delete' ? 'button danger-text' : 'button'} onClick={() => (asked.value = action)}>
              {capital(action)}
            </button>
          ))}
          <a class="button" href={hashOf({ page: 'submit' }, { from: job.id })}>
            Run again…
          </a>
        </Permit>
      </div>
      {asked.value === 'scale' && <ScaleDialog job={job} view={view} onClose={close} />}
      {asked.value !== null && asked.value !== 'scale' && <ActionDialog job={job} action={asked.value} onClose={close} />}
    </header>
  );
}

function legal(job: Job): Exclude<Asked, null>[] {
  if (isEnded(job.state)) return ['delete'];
  if (job.state === 'cancelling') return [];
  const pause = job.state === 'paused' || job.state === 'pausing' ? 'resume' : 'pause';
  return ['scale', pause, 'cancel'];
}

function ActionDialog({ job, action, onClose }: { job: Job; action: Action; onClose(): void }) {
  const busy = useSignal(false);
  const known = useKnown(job.id);
  const run = async (): Promise<void> => {
    busy.value = true;
    try {
      await (action === 'delete' ? deleteJob(job.id) : actOnJob(job.id, action));
      say(action === 'delete' ? `${titleOf(job)} is deleted` : `${capital(action)} accepted`);
      if (action === 'delete') go(hashOf({ page: 'jobs' }));
    } catch (error) {
      sayProblem(`${capital(action)} was refused`, error);
    }
    onClose();
  };
  return (
    <Dialog
      title={`${capital(action)} ${titleOf(job)}?`}
      confirm={`${capital(action)} the job`}
      danger={action === 'cancel' || action === 'delete'}
      busy={busy.value}
      onConfirm={() => void run()}
      onClose={onClose}
    >
      <p>{EFFECT[action]}</p>
      <EffectLines lines={linesOf(job, action, known.value)} />
    </Dialog>
  );
}

function linesOf(job: Job, action: Action, known: Known): Effect[] {
  if (action === 'delete') return effectOfDelete(known);
  return action === 'resume' ? effectOfResume(job, known) : effectOfEnd(job, action, known);
}

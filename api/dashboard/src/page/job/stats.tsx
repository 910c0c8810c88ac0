/** The numbers one looks for first. */

import type { ComponentChildren } from 'preact';
import { ago, bytes, duration, figure, roughly, secondsBetween, text, tokensRate, whole } from '../../domain/format';
import { largest } from '../../domain/memory';
import { fraction, secondsLeft, stepSeconds } from '../../domain/progress';
import { Moment } from '../../part/moment';
import { ProgressBar } from '../../part/progress';
import { Amount } from '../../part/quantity';
import { now } from '../../store/clock';
import type { JobView } from '../../store/jobview';
import { isActive, isEnded, type Job } from '../../wire/job';
import { toNumber } from '../../wire/series';

/** A controller reports about every second. */
const LATE_S = 15;

function Stat({ name, children, sub }: { name: string; children: ComponentChildren; sub?: ComponentChildren }) {
  return (
    <div class="stat">
      <dt>{name}</dt>
      <dd>{children}</dd>
      {sub && <dd class="sub">{sub}</dd>}
    </div>
  );
}

export function Stats({ job, view }: { job: Job; view: JobView }) {
  void view.version.value;
  const left = secondsLeft(job);
  const worst = largest(view.memory());
  const step = view.last('step_s') ?? stepSeconds(job);
  return (
    <dl class="stats">
      <div class="stat wide">
        <dt>Progress</dt>
        <dd>
          {whole(job.step)} <small>/ {whole(job.steps)} steps</small>
        </dd>
        <dd class="sub">
          <ProgressBar fraction={fraction(job)} state={job.state} label="Progress" />
          <span>{left === null ? endText(job) : `${roughly(left)} left`}</span>
        </dd>
      </div>
      <Stat name="Loss" sub={<LossSub view={view} />}>
        <span data-stat="loss">{job.loss === null ? '–' : figure(toNumber(job.loss))}</span>
      </Stat>
      <Stat name="Throughput" sub={step === null ? 'not measured yet' : `${duration(step)} per step`}>
        <Amount of={tokensRate(job.throughput_tokens_per_s)} />
      </Stat>
      <Stat name="Workers" sub={`${job.workers.min === job.workers.max ? `fixed at ${job.workers.min}` : `${job.workers.min} to ${job.workers.max}`} · generation ${job.generation ?? '–'}`}>
        <span data-stat="workers">
          {workersNow(job, view)}
        </span>
      </Stat>
      <Stat name="Memory, fullest rank" sub={worst?.predicted != null ? `predicted ${text(bytes(worst.predicted))}` : 'of model and step'}>
        <Amount of={bytes(worst?.total)} />
      </Stat>
      <Stat name="Ran" sub={<HeartbeatLine job={job} />}>
        {roughly(secondsBetween(job.started_at, job.ended_at ?? (job.started_at ? now.value : null)))}
      </Stat>
    </dl>
  );
}

/** `2 → 3` while the wish is not yet fact; of an ended job, how many it had at its end. */
function workersNow(job: Job, view: JobView): string {
  const { actual, desired } = job.workers;
  if (isEnded(job.state)) return String(view.last('workers') ?? actual);
  return actual === desired ? String(actual) : `${actual} → ${desired}`;
}

function endText(job: Job) {
  return job.ended_at ? (
    <>
      ended <Moment at={job.ended_at} />
    </>
  ) : (
    job.state
  );
}

function LossSub({ view }: { view: JobView }) {
  const points = view.get('loss')?.points ?? [];
  const low = points.reduce((best, p) => (p.min < best ? p.min : best), Infinity);
  return <>{Number.isFinite(low) ? `lowest ${figure(low)}` : 'no point yet'}</>;
}

function HeartbeatLine({ job }: { job: Job }) {
  const silent = secondsBetween(job.heartbeat_at, now.value);
  if (!isActive(job.state) || silent === null) return <>attempt {job.attempt ?? '–'}</>;
  return <span class={silent > LATE_S ? 'late' : ''}>heard {ago(Math.max(0, silent))}</span>;
}

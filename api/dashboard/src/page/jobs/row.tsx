/** One job in the list. */

import type { ReadonlySignal } from '@preact/signals';
import { Sparkline } from '../../chart/sparkline';
import { ago, bytes, figure, roughly, secondsBetween, text, tokensRate, utc, whole } from '../../domain/format';
import { capacityOf } from '../../domain/capacity';
import { modelLabel } from '../../domain/jobfilter';
import { isPresent, largest, stacksOf } from '../../domain/memory';
import { fraction, secondsLeft } from '../../domain/progress';
import { jobHash } from '../../domain/route';
import type { Series } from '../../domain/series';
import { placedOf, restingOf, slabsOf } from '../../domain/tiers';
import { StateBadge } from '../../part/badge';
import { MemoryBar } from '../../part/memorybar';
import { ProgressBar } from '../../part/progress';
import { Amount } from '../../part/quantity';
import { now } from '../../store/clock';
import type { JobList } from '../../store/joblist';
import { isActive, isEnded, titleOf, type Job } from '../../wire/job';
import { toNumber } from '../../wire/series';
import { choose, chosen } from './selection';

export type Capacity = JobList['capacity'];

export function JobRow({ job, index, curve, capacity }: { job: Job; index: number; curve: ReadonlySignal<Series>; capacity: Capacity }) {
  const name = titleOf(job);
  return (
    <div class="tr" role="row" aria-rowindex={index} data-job={job.id}>
      <div role="cell" class="c-pick">
        <input type="checkbox" aria-label={`Choose ${name}`} checked={chosen.value.has(job.id)} onChange={(e) => choose(job.id, e.currentTarget.checked)} />
      </div>
      <div role="cell" class="c-job">
        <a href={jobHash(job.id)} class="row-link">
          {name}
        </a>
        <small title={job.id}>
          {modelLabel(job.spec.model)} · stage {job.stage ?? job.spec.stage ?? '–'}
        </small>
      </div>
      <div role="cell" class="c-state">
        <StateBadge state={job.state} />
        <small title={job.reason ?? ''}>{job.reason}</small>
      </div>
      <Progress job={job} name={name} />
      <Workers job={job} />
      <div role="cell" class="c-tokens num">
        {isActive(job.state) || isEnded(job.state) ? <Amount of={tokensRate(job.throughput_tokens_per_s)} /> : '–'}
      </div>
      <div role="cell" class="c-loss num">
        <Sparkline series={curve.value} label={`Loss of ${name}`} />
        <span>{job.loss === null && job.step > 0 ? figure(curve.value.points.at(-1)?.value) : job.loss === null ? '–' : figure(toNumber(job.loss))}</span>
      </div>
      <Memory job={job} capacity={capacity} />
      <div role="cell" class="c-prio num">
        {job.priority}
      </div>
      <div role="cell" class="c-created num">
        <span title={utc(job.created_at)}>{ago(Math.max(0, secondsBetween(job.created_at, now.value) ?? 0))}</span>
        <small>{ran(job)}</small>
      </div>
    </div>
  );
}

function ran(job: Job): string {
  const seconds = secondsBetween(job.started_at, job.ended_at ?? (isActive(job.state) ? now.value : null));
  return seconds === null ? '' : `ran ${roughly(seconds)}`;
}

function Progress({ job, name }: { job: Job; name: string }) {
  const left = secondsLeft(job);
  return (
    <div role="cell" class="c-progress">
      <ProgressBar fraction={fraction(job)} state={job.state} label={`Progress of ${name}`} />
      <small>
        <b>{whole(job.step)}</b> / {whole(job.steps)} {left !== null && <span>· {roughly(left)} left</span>}
      </small>
    </div>
  );
}

/** `2 → 3` while the wish is not yet fact. */
function Workers({ job }: { job: Job }) {
  const { actual, desired, min, max } = job.workers;
  const same = actual === desired || isEnded(job.state);
  return (
    <div role="cell" class="c-workers num" title={`${actual} at work, ${desired} wanted, between ${min} and ${max}`}>
      <span>{same ? actual || '–' : `${actual} → ${desired}`}</span>
      <small>{min === max ? 'fixed' : `${min}–${max}`}</small>
    </div>
  );
}

/** The fullest rank against what a worker has; against the prediction where nobody knows what it has. */
function Memory({ job, capacity }: { job: Job; capacity: Capacity }) {
  const worst = largest(stacksOf(job.memory, isPresent(job)));
  if (!worst) return <div role="cell" class="c-memory num">–</div>;
  const { slot, countsHost } = capacity.value;
  const limit = capacityOf(job.spec, slot, countsHost);
  const placed = placedOf(worst, restingOf(job.spec, job.stage));
  const parts = slabsOf(countsHost ? [placed.device, placed.host] : [placed.device]);
  const held = parts.reduce((total, part) => total + part.bytes, 0);
  const scale = limit ?? Math.max(held, worst.predicted ?? 0);
  return (
    <div role="cell" class="c-memory num" title={worst.predicted === null ? '' : `predicted ${text(bytes(worst.predicted))}`}>
      <MemoryBar stack={{ rank: worst.rank, predicted: worst.predicted, parts }} scale={scale} thin />
      <small class={limit !== null && held > 0.9 * limit ? 'bad-text' : ''}>
        {text(bytes(held))} {limit === null ? '' : `of ${text(bytes(limit))}`}
      </small>
    </div>
  );
}

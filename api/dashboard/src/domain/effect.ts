/** What an action would do, in numbers, said before it is confirmed. */

import type { Checkpoint } from '../wire/checkpoint';
import type { Cluster } from '../wire/cluster';
import type { Explanation, Job } from '../wire/job';
import type { PlanChoice } from '../wire/plan';
import { bytes, roughly, short, text, whole } from './format';
import { bytesOn, otherTiers } from './planparts';
import { stepSeconds } from './progress';
import { sharesText } from './share';

export interface Effect {
  what: string;
  /** What stands now, where it changes. */
  from?: string;
  to: string;
}

/** What could be found out; the effect says what it knows. */
export interface Known {
  why: Explanation | null;
  checkpoints: readonly Checkpoint[] | null;
  pending: Cluster['pending'] | null;
}

const many = (count: number, noun: string): string => `${whole(count)} ${noun}${count === 1 ? '' : 's'}`;

/** Another number of workers, as the planner sees it. */
export function effectOfScale(job: Job, to: number, before: PlanChoice | undefined, after: PlanChoice | undefined, known: Known): Effect[] {
  const { actual } = job.workers;
  const lines: Effect[] = [{ what: 'Workers', from: String(actual), to: String(to) }];
  const { batch_size, micro_batch_size } = job.spec.training ?? {};
  if (batch_size && micro_batch_size) {
    const micro = Math.floor(batch_size / micro_batch_size);
    lines.push({ what: 'Micro-batches of a step', to: `${micro} shared as ${sharesText(micro, to)}; batch, order and loss stay the same` });
  }
  if (after) {
    const tiers = [...new Set(['device', ...otherTiers(after), ...(before ? otherTiers(before) : [])])];
    lines.push(...tiers.map((tier) => change(tierName(tier), before && bytesOn(before, tier), bytesOn(after, tier), (v) => text(bytes(v)))));
    lines.push(change('Elements moved per step and rank', before?.elements_per_step, after.elements_per_step, short));
    if (after.fits === false) lines.push({ what: 'Does not fit', to: `a worker has less than this; ${after.note}` });
  }
  const more = to - actual;
  if (known.why && more > 0) lines.push({ what: `${known.why.slot_kind.toUpperCase()} slots`, to: slotsFor(more, known.why) });
  if (more < 0) lines.push({ what: 'Slots given back', to: givenBack(-more, job.id, known) });
  return lines;
}

const tierName = (tier: string): string => (tier === 'device' ? 'Memory per rank, predicted' : `Memory per rank on ${tier}, predicted`);

function change(what: string, before: number | undefined, after: number, say: (value: number) => string): Effect {
  return before === undefined || before === after ? { what, to: say(after) } : { what, from: say(before), to: say(after) };
}

const slotsFor = (more: number, why: Explanation): string =>
  why.slots_free >= more ? `${more} more; ${why.slots_free} are free` : `${more} more, but only ${why.slots_free} of ${why.slots} are free: the rest follows when others give back`;

function givenBack(workers: number, jobId: string, known: Known): string {
  const next = known.pending?.find((one) => one.job_id !== jobId);
  const words = many(workers, 'worker');
  return next ? `those of ${words}; ${next.name ?? `job ${next.job_id.slice(-8)}`} waits for ${next.slots}` : `those of ${words}; nobody waits for them`;
}

/** A pause keeps every step; the end of a job loses what no checkpoint holds. */
export function effectOfEnd(job: Job, action: 'pause' | 'cancel', known: Known): Effect[] {
  const lines: Effect[] = [];
  const newest = known.checkpoints?.[0];
  if (action === 'pause') lines.push({ what: 'Steps lost', to: `none: a checkpoint of step ${whole(job.step)} or later is saved first` });
  else if (known.checkpoints) lines.push({ what: 'Steps that no checkpoint holds', to: unsaved(job, newest?.step ?? 0) });
  if (job.workers.actual > 0) lines.push({ what: 'Slots given back', to: givenBack(job.workers.actual, job.id, known) });
  return lines;
}

/** One action on several jobs: who changes, and what that gives or takes. */
export function effectOfMany(jobs: readonly Job[], action: 'pause' | 'resume' | 'cancel'): Effect[] {
  const workers = jobs.reduce((sum, job) => sum + job.workers.actual, 0);
  if (action === 'resume') return [{ what: 'Workers they ask for, at least', to: whole(jobs.reduce((sum, job) => sum + job.workers.min, 0)) }];
  const lost = action === 'pause' ? 'none: each saves a checkpoint first' : 'those after the newest checkpoint of each';
  return [{ what: 'Workers given back', to: whole(workers) }, { what: 'Steps lost', to: lost }];
}

function unsaved(job: Job, saved: number): string {
  const steps = Math.max(0, job.step - saved);
  const step = stepSeconds(job);
  if (steps === 0) return 'none';
  return `${many(steps, 'step')} after step ${whole(saved)}${step === null ? '' : `, about ${roughly(steps * step)} of work`}`;
}

export function effectOfResume(job: Job, known: Known): Effect[] {
  const newest = known.checkpoints?.[0];
  const lines: Effect[] = [{ what: 'Goes on from', to: newest ? `step ${whole(newest.step)}` : `step ${whole(job.step)}` }];
  if (known.why) lines.push({ what: `${known.why.slot_kind.toUpperCase()} slots`, to: slotsFor(known.why.needs_slots, known.why) });
  return lines;
}

export function effectOfDelete(known: Known): Effect[] {
  const all = known.checkpoints;
  if (!all) return [];
  const size = all.reduce((sum, one) => sum + one.size_bytes, 0);
  return [{ what: 'Checkpoints removed', to: all.length ? `${all.length}, ${text(bytes(size))}` : 'none' }];
}

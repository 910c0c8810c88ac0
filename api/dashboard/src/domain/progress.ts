/** How far a job is and how long it still takes, from the numbers every job has. */

import type { Job } from '../wire/job';
import { isActive } from '../wire/job';

export function fraction(job: Pick<Job, 'step' | 'steps'>): number {
  return job.steps > 0 ? Math.min(1, Math.max(0, job.step / job.steps)) : 0;
}

/** Seconds of one step: tokens of a global batch over the measured rate. Null while nothing is measured. */
export function stepSeconds(job: Pick<Job, 'spec' | 'throughput_tokens_per_s'>): number | null {
  const { batch_size, seq_len } = job.spec.training ?? {};
  const rate = job.throughput_tokens_per_s;
  if (!batch_size || !seq_len || !rate || rate <= 0) return null;
  return (batch_size * seq_len) / rate;
}

/** Null for a job that does not move: a guess for a queued job would be a lie. */
export function secondsLeft(job: Job): number | null {
  if (!isActive(job.state) || job.state === 'pausing' || job.state === 'cancelling') return null;
  const step = stepSeconds(job);
  return step === null ? null : step * Math.max(0, job.steps - job.step);
}

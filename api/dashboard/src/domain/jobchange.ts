/** A job kept current by what the stream says: state notices are parts of it, samples carry its loss, rate and memory. */

import type { Job, RankMemory } from '../wire/job';
import { toNumber, type SampleItem } from '../wire/series';
import { isNotOlder } from './jobmerge';

export type JobChange = Partial<Job> & { id: string };

/** The change laid over the job; the job itself where the change is older than it. */
export function withChange(job: Job, change: JobChange): Job {
  const next: Job = { ...job, ...change };
  return isNotOlder(job, next) ? next : job;
}

const MEMORY_FIELD = /^mem_(\w+_bytes)$/;

/** Loss, rate, memory and the sign of life that came with these samples; the same object where they say nothing of it. */
export function withSamples(job: Job, samples: readonly SampleItem[]): Job {
  let next = job;
  for (const sample of samples) {
    if (sample.generation < (job.generation ?? 0)) continue;
    next = withSample(next, sample);
  }
  return next;
}

function withSample(job: Job, sample: SampleItem): Job {
  const heard = { heartbeat_at: later(job.heartbeat_at, sample.at) };
  const value = toNumber(sample.value);
  if (sample.rank === null || sample.rank === undefined) {
    if (sample.name === 'loss') return { ...job, ...heard, loss: Number.isFinite(value) ? value : 'NaN' };
    if (sample.name === 'tokens_per_s') return { ...job, ...heard, throughput_tokens_per_s: value };
    return job;
  }
  const field = MEMORY_FIELD.exec(sample.name)?.[1];
  return field ? { ...job, ...heard, memory: { per_rank: withField(job.memory?.per_rank ?? [], sample.rank, field, value) } } : job;
}

function later(a: string | null, b: string): string {
  return a !== null && Date.parse(a) > Date.parse(b) ? a : b;
}

function withField(ranks: readonly RankMemory[], rank: number, field: string, value: number): RankMemory[] {
  const known = ranks.find((r) => r.rank === rank) ?? emptyRank(rank);
  const next = { ...known, [field]: Number.isFinite(value) ? value : null };
  return [...ranks.filter((r) => r.rank !== rank), next].sort((a, b) => a.rank - b.rank);
}

const emptyRank = (rank: number): RankMemory => ({
  rank,
  params_bytes: null,
  grads_bytes: null,
  optimizer_bytes: null,
  activations_peak_bytes: null,
  gathered_peak_bytes: null,
  process_bytes: null,
  predicted_bytes: null,
});

/** Memory of a rank by kind, in the order in which it is stacked. */

import type { Job, RankMemory } from '../wire/job';

export const MEMORY_KINDS = ['params', 'grads', 'optimizer', 'activations', 'gathered'] as const;
export type MemoryKind = (typeof MEMORY_KINDS)[number];

export const KIND_LABEL: Record<MemoryKind, string> = {
  params: 'parameters',
  grads: 'gradients',
  optimizer: 'optimizer',
  activations: 'activations, peak',
  gathered: 'gathered, peak',
};

/** For the head of a chart, where five of them stand in a line. */
export const KIND_SHORT: Record<MemoryKind, string> = {
  params: 'params',
  grads: 'grads',
  optimizer: 'optimizer',
  activations: 'activations',
  gathered: 'gathered',
};

export const KIND_METRIC: Record<MemoryKind, string> = {
  params: 'mem_params_bytes',
  grads: 'mem_grads_bytes',
  optimizer: 'mem_optimizer_bytes',
  activations: 'mem_activations_peak_bytes',
  gathered: 'mem_gathered_peak_bytes',
};

const FIELD: Record<MemoryKind, keyof RankMemory> = {
  params: 'params_bytes',
  grads: 'grads_bytes',
  optimizer: 'optimizer_bytes',
  activations: 'activations_peak_bytes',
  gathered: 'gathered_peak_bytes',
};

export interface RankStack {
  rank: number;
  parts: { kind: MemoryKind; bytes: number }[];
  total: number;
  predicted: number | null;
  process: number | null;
  /** Of the parts, what is offloaded. */
  host: number;
  nvme: number;
}

export function stackOf(memory: RankMemory): RankStack {
  const parts = MEMORY_KINDS.map((kind) => ({ kind, bytes: memory[FIELD[kind]] ?? 0 }));
  return {
    rank: memory.rank,
    parts,
    total: parts.reduce((sum, part) => sum + part.bytes, 0),
    predicted: memory.predicted_bytes,
    process: memory.process_bytes,
    host: memory.host_bytes ?? 0,
    nvme: memory.nvme_bytes ?? 0,
  };
}

/** One rank's memory from its metrics; null where one is not measured, as activations on a CPU. */
export function rankMemory(rank: number, bytesOf: (metric: string) => number | null): RankMemory {
  return {
    rank,
    params_bytes: bytesOf('mem_params_bytes'),
    grads_bytes: bytesOf('mem_grads_bytes'),
    optimizer_bytes: bytesOf('mem_optimizer_bytes'),
    activations_peak_bytes: bytesOf('mem_activations_peak_bytes'),
    gathered_peak_bytes: bytesOf('mem_gathered_peak_bytes'),
    process_bytes: bytesOf('mem_process_bytes'),
    predicted_bytes: bytesOf('mem_predicted_bytes'),
    host_bytes: bytesOf('mem_host_bytes'),
    nvme_bytes: bytesOf('mem_nvme_bytes'),
  };
}

/** By rank. `present` leaves out ranks of a larger generation before: their last word is old. */
export const stacksOf = (memory: { per_rank: RankMemory[] } | null, present: (rank: number) => boolean = () => true): RankStack[] =>
  [...(memory?.per_rank ?? [])]
    .filter((r) => present(r.rank))
    .sort((a, b) => a.rank - b.rank)
    .map(stackOf);

/** Ranks are numbered from 0 without a hole; a job that has ended has nobody at work and shows all it had. */
export const isPresent = (job: Pick<Job, 'workers'>) => (rank: number): boolean => job.workers.actual === 0 || rank < job.workers.actual;

/** The rank that decides whether the job fits. */
export function largest(stacks: readonly RankStack[]): RankStack | null {
  return stacks.reduce<RankStack | null>((worst, stack) => (worst && worst.total >= stack.total ? worst : stack), null);
}

/** Cumulative sums for stacked areas: the i-th row is the top edge of the i-th kind. */
export function cumulative(rows: readonly (readonly number[])[]): number[][] {
  const tops: number[][] = [];
  for (const row of rows) {
    const below = tops.at(-1);
    tops.push(row.map((value, i) => (below?.[i] ?? 0) + (Number.isFinite(value) ? value : 0)));
  }
  return tops;
}

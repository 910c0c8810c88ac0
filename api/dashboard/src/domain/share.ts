/** What another number of workers would mean, said before it is asked for. */

import type { MemoryKind, RankStack } from './memory';

/** Micro-batches per worker, larger ones first: 8 over 3 is 3, 3, 2. The sum never depends on the workers. */
export function shares(microBatches: number, workers: number): number[] {
  const base = Math.floor(microBatches / workers);
  const extra = microBatches % workers;
  return Array.from({ length: workers }, (_, rank) => base + (rank < extra ? 1 : 0));
}

export function sharesText(microBatches: number, workers: number): string {
  const parts = shares(microBatches, workers);
  return parts.length > 6 ? `${parts[0]} to ${parts.at(-1)} each` : parts.join(' + ');
}

/** Kinds that a stage shards: 1 the optimizer, 2 also gradients, 3 also parameters. */
export function shardedKinds(stage: number | string | null): ReadonlySet<MemoryKind> {
  const level = Number(stage);
  const kinds: MemoryKind[] = [];
  if (level >= 1) kinds.push('optimizer');
  if (level >= 2) kinds.push('grads');
  if (level >= 3) kinds.push('params');
  return new Set(kinds);
}

/** Bytes of the largest rank after a resize: sharded kinds scale with 1/N, the others stay. */
export function afterResize(stack: RankStack, stage: number | string | null, from: number, to: number): number {
  const sharded = shardedKinds(stage);
  return stack.parts.reduce((sum, { kind, bytes }) => sum + (sharded.has(kind) ? (bytes * from) / to : bytes), 0);
}

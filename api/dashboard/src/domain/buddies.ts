/** Where the copies of shards rest: each worker's shard is held twice, at home and in the memory of its buddy. */

import type { Worker } from '../wire/job';

export interface Kept extends Worker {
  /** The worker that keeps the copy; null where nobody does. */
  keeper: Worker | null;
  /** The copy is on another node, so that losing one node loses neither shard. */
  apart: boolean;
}

export function keptBy(members: readonly Worker[]): Kept[] {
  const byRank = new Map(members.map((one) => [one.rank, one] as const));
  return members.map((one) => {
    const keeper = byRank.get(one.buddy ?? -1) ?? null;
    return { ...one, keeper, apart: keeper !== null && keeper.node !== one.node };
  });
}

/** What may be lost without going back to a checkpoint, in one sentence. */
export function safety(kept: readonly Kept[]): string {
  const copies = kept.filter((one) => one.keeper !== null);
  if (!copies.length) return 'No shard is copied to another worker: after a loss, a checkpoint is read, or a worker that holds the whole state.';
  const together = copies.filter((one) => !one.apart).length;
  if (!together) return 'Each shard is held on two nodes: a lost node takes none of them with it.';
  if (together === copies.length) return 'Each shard is held by two workers of one node: a lost worker takes none with it, a lost node does.';
  return `${together} of ${copies.length} shards are held twice on one node, and would be lost with it.`;
}

/** "stories 0, 2": the ranks of each job on a node. */
export function ranksOn(address: string, uses: readonly { name: string; members: readonly Worker[] }[]): string[] {
  return uses
    .map(({ name, members }) => ({ name, ranks: members.filter((one) => one.node === address).map((one) => one.rank) }))
    .filter(({ ranks }) => ranks.length)
    .map(({ name, ranks }) => `${name} ${ranks.length > 8 ? `${ranks.length} ranks` : ranks.join(', ')}`);
}

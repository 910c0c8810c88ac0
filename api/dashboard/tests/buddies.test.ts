import { describe, expect, it } from 'vitest';
import { keptBy, ranksOn, safety } from '../src/domain/buddies';
import type { Worker } from '../src/wire/job';

const worker = (rank: number, node: string, buddy: number | null): Worker => ({ rank, node, buddy, pid: 1, device: 'cpu', state: 'running' });
const told = (...members: Worker[]): string => safety(keptBy(members));

describe('copies of shards', () => {
  it('are found at the buddy, and known to be on another node', () => {
    const kept = keptBy([worker(0, 'a', 1), worker(1, 'b', 0), worker(2, 'b', 1), worker(3, 'b', null)]);
    expect(kept.map((one) => [one.keeper?.rank ?? null, one.apart])).toEqual([[1, true], [0, true], [1, false], [null, false]]);
  });
  it('say what may be lost', () => {
    expect(told(worker(0, 'a', 1), worker(1, 'b', 0))).toMatch(/^Each shard is held on two nodes/);
    expect(told(worker(0, 'a', 1), worker(1, 'a', 0))).toMatch(/a lost worker takes none with it, a lost node does/);
    expect(told(worker(0, 'a', 1), worker(1, 'a', 2), worker(2, 'b', 0))).toMatch(/^1 of 3 shards/);
    expect(told(worker(0, 'a', null))).toMatch(/^No shard is copied/);
  });
  it('of a buddy that is gone are nowhere', () => expect(keptBy([worker(0, 'a', 5)])[0]?.keeper).toBeNull());
  it('are told by node, job by job', () => {
    const many = Array.from({ length: 9 }, (_, rank) => worker(rank, 'a', null));
    expect(ranksOn('a', [{ name: 'x', members: [worker(0, 'a', 1), worker(1, 'b', 0), worker(2, 'a', 0)] }, { name: 'y', members: many }])).toEqual(['x 0, 2', 'y 9 ranks']);
  });
});

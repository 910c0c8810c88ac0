import { describe, expect, it } from 'vitest';
import { withChange, withSamples } from '../src/domain/jobchange';
import { matches } from '../src/domain/jobfilter';
import { byNewest, isNotOlder } from '../src/domain/jobmerge';
import { largest, stacksOf } from '../src/domain/memory';
import { fraction, secondsLeft } from '../src/domain/progress';
import { shares, sharesText } from '../src/domain/share';
import type { Job, RankMemory } from '../src/wire/job';

const rank = (n: number, optimizer: number): RankMemory => ({
  rank: n,
  params_bytes: 100,
  grads_bytes: 50,
  optimizer_bytes: optimizer,
  activations_peak_bytes: null,
  gathered_peak_bytes: 10,
  process_bytes: 5000,
  predicted_bytes: 900,
});

const job: Job = {
  id: '0197-a',
  name: 'stories',
  state: 'running',
  reason: '',
  spec: { model: 'gpt-tiny', training: { batch_size: 32, seq_len: 256 } },
  stage: 2,
  step: 50,
  steps: 200,
  workers: { desired: 2, actual: 2, min: 1, max: 4 },
  generation: 2,
  attempt: 1,
  throughput_tokens_per_s: 8192,
  loss: 3,
  memory: null,
  priority: 50,
  created_at: '2026-01-01T00:00:00Z',
  started_at: null,
  ended_at: null,
  heartbeat_at: '2026-01-01T00:01:00Z',
};

describe('which picture of a job is the later one', () => {
  it('is the one with more steps', () => {
    expect(isNotOlder(job, { ...job, step: 51 })).toBe(true);
    expect(isNotOlder(job, { ...job, step: 49 })).toBe(false);
  });
  it('is the newer generation, whatever the step says after a rollback', () => expect(isNotOlder(job, { ...job, generation: 3, step: 10 })).toBe(true));
  it('is the end, for good', () => {
    const ended: Job = { ...job, state: 'succeeded' };
    expect(isNotOlder(ended, { ...job, step: 60 })).toBe(false);
    expect(withChange(ended, { id: job.id, state: 'running' })).toBe(ended);
  });
  it('is the second of two that differ in nothing that grows', () => expect(isNotOlder(job, { ...job, state: 'pausing' })).toBe(true));
  it('sorts newest first', () => expect([{ id: 'a' }, { id: 'c' }, { id: 'b' }].sort(byNewest).map((j) => j.id)).toEqual(['c', 'b', 'a']));
});

describe('samples', () => {
  const sample = { step: 51, generation: 2, at: '2026-01-01T00:02:00Z' };
  it('bring loss, rate, memory and a sign of life', () => {
    const next = withSamples(job, [
      { ...sample, name: 'loss', rank: null, value: 2.5 },
      { ...sample, name: 'tokens_per_s', rank: null, value: 9000 },
      { ...sample, name: 'mem_params_bytes', rank: 1, value: 77 },
    ]);
    expect(next).toMatchObject({ loss: 2.5, throughput_tokens_per_s: 9000, heartbeat_at: sample.at });
    expect(next.memory?.per_rank).toMatchObject([{ rank: 1, params_bytes: 77, grads_bytes: null }]);
  });
  it('of an older generation change nothing', () => expect(withSamples(job, [{ ...sample, generation: 1, name: 'loss', rank: null, value: 9 }])).toBe(job));
  it('say a loss that is no number', () => expect(withSamples(job, [{ ...sample, name: 'loss', rank: null, value: null }]).loss).toBe('NaN'));
});

describe('progress', () => {
  it('guesses from tokens per step and rate', () => expect(secondsLeft(job)).toBe(150));
  it('guesses nothing for a job that does not move', () => {
    expect(secondsLeft({ ...job, state: 'queued' })).toBeNull();
    expect(secondsLeft({ ...job, throughput_tokens_per_s: null })).toBeNull();
  });
  it('stays between nothing and all', () => expect([fraction({ step: 300, steps: 200 }), fraction({ step: 1, steps: 0 })]).toEqual([1, 0]));
});

describe('memory', () => {
  it('finds the fullest rank and leaves out ranks that are gone', () => {
    const memory = { per_rank: [rank(1, 700), rank(0, 300), rank(2, 9000)] };
    expect(largest(stacksOf(memory, (r) => r < 2))?.rank).toBe(1);
    expect(stacksOf(memory).map((s) => s.rank)).toEqual([0, 1, 2]);
    expect(stacksOf(memory)[0]?.total).toBe(460);
  });
});

describe('shares of a step', () => {
  it.each([
    [8, 3, [3, 3, 2]],
    [8, 2, [4, 4]],
    [2, 3, [1, 1, 0]],
  ])('%d micro-batches over %d workers', (micro, workers, each) => expect(shares(micro, workers)).toEqual(each));
  it('are summed up where they are many', () => expect(sharesText(64, 7)).toBe('10 to 9 each'));
});

describe('the filter', () => {
  it('asks for every word somewhere', () => {
    expect(matches(job, { search: 'tiny STOR', states: [] })).toBe(true);
    expect(matches(job, { search: 'tiny large', states: [] })).toBe(false);
  });
  it('knows states', () => expect(matches(job, { search: '', states: ['queued'] })).toBe(false));
});

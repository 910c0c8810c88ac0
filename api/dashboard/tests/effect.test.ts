import { describe, expect, it } from 'vitest';
import { effectOfDelete, effectOfEnd, effectOfMany, effectOfResume, effectOfScale, type Effect, type Known } from '../src/domain/effect';
import type { Checkpoint } from '../src/wire/checkpoint';
import type { Explanation, Job } from '../src/wire/job';
import type { PlanChoice } from '../src/wire/plan';

const job = {
  id: 'a',
  step: 150,
  spec: { model: 'x', training: { batch_size: 8, micro_batch_size: 1, seq_len: 10 } },
  workers: { desired: 2, actual: 2, min: 1, max: 4 },
  throughput_tokens_per_s: 8,
} as unknown as Job;
const choice = (workers: number, device: number, moved: number): PlanChoice => ({
  stage: 2,
  offload: 'none',
  workers,
  bytes_by_kind: { optimizer: { device } },
  states_bytes: device,
  total_bytes: device,
  elements_per_step: moved,
  fits: true,
  note: '',
});
const why = { slot_kind: 'cpu', needs_slots: 2, slots: 4, slots_free: 1 } as Explanation;
const checkpoint = (step: number): Checkpoint => ({ step, size_bytes: 2 ** 20, files: 2, uri: '', duration_s: 1, attempt: 1, at: '', pinned: false });
const nothing: Known = { why: null, checkpoints: null, pending: null };
const said = (lines: readonly Effect[]): string[] => lines.map((line) => `${line.what}: ${line.from === undefined ? '' : `${line.from} → `}${line.to}`);

describe('the effect of an action', () => {
  it('of more workers is memory, traffic and the slots it takes', () =>
    expect(said(effectOfScale(job, 4, choice(2, 4096, 3000), choice(4, 2048, 3000), { ...nothing, why }))).toEqual([
      'Workers: 2 → 4',
      'Micro-batches of a step: 8 shared as 2 + 2 + 2 + 2; batch, order and loss stay the same',
      'Memory per rank, predicted: 4.00 KiB → 2.00 KiB',
      'Elements moved per step and rank: 3.00k',
      'CPU slots: 2 more, but only 1 of 4 are free: the rest follows when others give back',
    ]));
  it('of fewer says who waits for the slots, and never the job itself', () => {
    const pending = [{ job_id: 'a', name: 'own', slots: 1, reason: '' }, { job_id: 'b', name: 'next', slots: 3, reason: '' }];
    expect(said(effectOfScale(job, 1, undefined, undefined, { ...nothing, pending })).at(-1)).toBe('Slots given back: those of 1 worker; next waits for 3');
  });
  it('of a cancel is the work that no checkpoint holds', () => {
    expect(said(effectOfEnd(job, 'cancel', { ...nothing, checkpoints: [checkpoint(120), checkpoint(60)] }))[0]).toBe(
      'Steps that no checkpoint holds: 30 steps after step 120, about 5 min 00 s of work',
    );
    expect(said(effectOfEnd(job, 'cancel', { ...nothing, checkpoints: [checkpoint(150)] }))[0]).toBe('Steps that no checkpoint holds: none');
  });
  it('of a pause is no step lost', () => expect(said(effectOfEnd(job, 'pause', nothing))[0]).toMatch(/^Steps lost: none/));
  it('of a resume is where it goes on and what it waits for', () =>
    expect(said(effectOfResume(job, { ...nothing, why, checkpoints: [checkpoint(120)] }))).toEqual([
      'Goes on from: step 120',
      'CPU slots: 2 more, but only 1 of 4 are free: the rest follows when others give back',
    ]));
  it('on several is that on all of them together', () => {
    expect(said(effectOfMany([job, job], 'cancel'))).toEqual(['Workers given back: 4', 'Steps lost: those after the newest checkpoint of each']);
    expect(said(effectOfMany([job, job], 'resume'))).toEqual(['Workers they ask for, at least: 2']);
  });
  it('of a deletion is what goes with it', () => expect(said(effectOfDelete({ ...nothing, checkpoints: [checkpoint(1), checkpoint(2)] }))).toEqual(['Checkpoints removed: 2, 2.00 MiB']));
});

import { describe, expect, it } from 'vitest';
import { again, differences, parseSpec, shortened, valueAt, withValue } from '../src/domain/draft';
import { overlay, placeOf, valueAtPlace, type Curve } from '../src/domain/overlay';
import { accelerators, bytesOn, easiestOn, otherTiers, partsOn, predictedOf, smallestThatHolds } from '../src/domain/planparts';
import { fieldAt, pathsOf } from '../src/domain/schema';
import type { PlanChoice } from '../src/wire/plan';
import type { Point } from '../src/wire/series';

const SCHEMAS = {
  Spec: {
    properties: {
      stage: { anyOf: [{ enum: [0, 1, 2, 3, 'auto'] }, { type: 'string', enum: ['FULL_SHARD'] }], default: 2 },
      workers: { anyOf: [{ $ref: '#/components/schemas/Bounds' }, { type: 'integer', minimum: 1 }], default: { min: 1, max: 1 } },
      training: { $ref: '#/components/schemas/Training' },
      name: { anyOf: [{ type: 'string' }, { type: 'null' }], default: null },
    },
  },
  Bounds: { properties: { min: { type: 'integer', minimum: 1, maximum: 4096, default: 1 } } },
  Training: { properties: { lr: { type: 'number', maximum: 10, default: 0.0003 }, fast: { type: 'boolean', default: false } } },
};

describe('a field of the schema', () => {
  it('offers its own choices, not its other names', () =>
    expect(fieldAt('stage', 'Spec', SCHEMAS)).toMatchObject({ kind: 'choice', choices: [0, 1, 2, 3, 'auto'], fallback: 2 }));
  it('is found behind references and short forms', () => {
    expect(fieldAt('workers.min', 'Spec', SCHEMAS)).toMatchObject({ kind: 'integer', min: 1, max: 4096, fallback: 1 });
    expect(fieldAt('training.lr', 'Spec', SCHEMAS)).toMatchObject({ kind: 'number', max: 10 });
    expect(fieldAt('training.fast', 'Spec', SCHEMAS)?.kind).toBe('boolean');
    expect(fieldAt('name', 'Spec', SCHEMAS)?.kind).toBe('text');
  });
  it('is listed where one can choose or type it, and typed as a number where it may be one', () => {
    expect(pathsOf('Spec', SCHEMAS)).toEqual(['stage', 'workers.min', 'training.lr', 'training.fast']);
    const either = { Spec: { properties: { step_s: { anyOf: [{ const: 'auto', type: 'string' }, { type: 'number' }] } } } };
    expect(fieldAt('step_s', 'Spec', either)?.kind).toBe('number');
  });
  it('is none where the service has none', () => expect(fieldAt('training.nothing', 'Spec', SCHEMAS)).toBeNull());
});

describe('a draft', () => {
  const spec = { model: 'gpt-tiny', training: { steps: 10 } };
  it('changes by path and leaves the old one alone', () => {
    const next = withValue(spec, 'training.steps', 20);
    expect([valueAt(next, 'training.steps'), valueAt(spec, 'training.steps')]).toEqual([20, 10]);
    expect(withValue(spec, 'workers.max', 4)).toMatchObject({ workers: { max: 4 } });
  });
  it('loses what is emptied, and objects with nothing left', () => expect(withValue(spec, 'training.steps', undefined)).toEqual({ model: 'gpt-tiny' }));
  it('opens a short form when a part of it is changed', () => {
    expect(withValue({ model: 'x', offload: 'cpu' }, 'offload.ratio', 0.5)).toEqual({ model: 'x', offload: { optimizer: 'cpu', ratio: 0.5 } });
    expect(valueAt({ model: 'x', workers: 3 }, 'workers.max')).toBe(3);
  });
  it('of a job may begin at its checkpoint', () => expect(again({ model: 'x', name: null }, 'job-1@40')).toEqual({ model: 'x', from: 'job-1@40' }));
  it('is only read from an object', () => expect([parseSpec('[1]'), parseSpec('{'), parseSpec('{"model":"x"}')]).toEqual([null, null, { model: 'x' }]));
  it('comes back from the long form in short words', () =>
    expect(
      shortened({
        model: 'gpt-tiny',
        name: null,
        precision: { params: 'bf16', reduce: 'fp32', buffers: 'fp32' },
        offload: { optimizer: 'none', params: null, ratio: 1, path: null },
        workers: 2,
      }),
    ).toEqual({ model: 'gpt-tiny', precision: 'bf16', offload: 'none', workers: { min: 2, max: 2 } }));
  it('names where specs differ', () =>
    expect(differences([{ model: 'a', stage: 1, training: { steps: 1 } }, { model: 'a', stage: 2 }])).toEqual([
      { path: 'stage', values: ['1', '2'] },
      { path: 'training.steps', values: ['1', '–'] },
    ]));
});

describe('a plan', () => {
  const choice: PlanChoice = {
    stage: 2,
    offload: 'cpu',
    workers: 2,
    bytes_by_kind: { params: { device: 10 }, optimizer: { cpu: 60 }, logits_peak: { device: 5 }, activations_peak: { device: 5 }, buckets_peak: { device: 1 } },
    states_bytes: 70,
    total_bytes: 81,
    elements_per_step: 5,
    fits: null,
    note: '',
  };
  it('folds the finer kinds into those that are drawn, and loses no byte', () => {
    expect(bytesOn(choice, 'device')).toBe(21);
    expect(partsOn(choice, 'device').find((p) => p.kind === 'activations')?.bytes).toBe(10);
    expect(otherTiers(choice)).toEqual(['cpu']);
  });
  it('is compared in the kinds that are measured', () => {
    expect(predictedOf(choice, (metric) => metric === 'mem_params_bytes' || metric === 'mem_logits_peak_bytes')).toBe(15);
    expect(predictedOf(choice, () => false)).toBeNull();
    expect(predictedOf(undefined, () => true)).toBeNull();
  });
  it('says which memory holds it', () => expect([smallestThatHolds(1), smallestThatHolds(2 ** 50)]).toEqual(['16 GiB', 'no single accelerator']));
});

describe('the easiest way onto an accelerator', () => {
  const of = (offload: string, workers: number, stage: number, device: number): PlanChoice => ({
    stage, offload, workers, bytes_by_kind: { params: { device } }, states_bytes: device, total_bytes: device, elements_per_step: 1, fits: null, note: '',
  });
  const choices = [of('none', 2, 0, 100), of('none', 2, 3, 60), of('none', 1, 0, 120), of('cpu', 1, 0, 30)];
  it.each([[200, 'none', 1, 0], [120, 'none', 2, 0], [70, 'none', 2, 3], [40, 'cpu', 1, 0]])('of %d bytes', (size, offload, workers, stage) =>
    expect(easiestOn(choices, size)).toMatchObject({ offload, workers, stage }));
  it('is said once for all that need nothing else', () => {
    const large = [of('none', 2, 0, 20 * 2 ** 30), of('none', 1, 0, 30 * 2 ** 30)];
    expect(accelerators(large).map((line) => [line.name, line.andLarger, line.choice?.workers])).toEqual([
      ['16 GiB', false, undefined],
      ['24 GiB', false, 2],
      ['40 GiB', true, 1],
    ]);
  });
  it('is none where nothing fits', () => expect(easiestOn(choices, 20)).toBeNull());
});

describe('curves over each other', () => {
  const point = (step: number, second: number, value: number): Point => ({
    step,
    value,
    min: value,
    max: value,
    count: 1,
    generation: 1,
    at: new Date(1_700_000_000_000 + second * 1000).toISOString(),
  });
  const a: Curve = { jobId: 'a', spec: { model: 'x', training: { batch_size: 2, seq_len: 8 } }, points: [point(1, 5, 4), point(2, 8, 3)] };
  const b: Curve = { jobId: 'b', spec: { model: 'x' }, points: [point(2, 0, 9)] };
  it('stand by step, by tokens seen, by time since their first point', () => {
    const last = a.points[1] as Point;
    expect([placeOf(a, last, 'step'), placeOf(a, last, 'tokens'), placeOf(a, last, 'time')]).toEqual([2, 32, 3]);
  });
  it('share one axis', () => {
    const [first, second] = [[4, 3], [null, 9]];
    expect(overlay([a, b], 'step')).toEqual({ xs: [1, 2], columns: [[first, first, first], [second, second, second]] });
  });
  it('keep the spike of a step that no point is of', () => {
    const [spiky] = a.points.map((p) => ({ ...p, max: 50, count: 10 }));
    expect(overlay([{ ...a, points: spiky ? [spiky] : [] }], 'step').columns[0]?.[0]).toEqual([50]);
  });
  it('read their last value at a place', () => {
    expect([valueAtPlace(a, 1, 'step'), valueAtPlace(b, 1, 'step'), valueAtPlace(a, null, 'step')]).toEqual([4, null, 3]);
  });
});

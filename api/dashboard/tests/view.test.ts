import { describe, expect, it } from 'vitest';
import { brokenSteps, carriedColumn, columnAt, shownText, stepsOf } from '../src/domain/align';
import { markersOf, sentence, skipMarkers } from '../src/domain/marker';
import { generationsOf, lanesOf } from '../src/domain/generations';
import { cumulative } from '../src/domain/memory';
import { rangeOf } from '../src/domain/range';
import { hashOf, jobHash, parsePlace } from '../src/domain/route';
import { rowWindow } from '../src/domain/rows';
import { emptySeries, type Series } from '../src/domain/series';
import { smooth } from '../src/domain/smooth';
import { sparkPath } from '../src/domain/spark';
import { aroundOf, detailPoints, parseWindow, roundWindow, windowText } from '../src/domain/zoom';
import type { Point } from '../src/wire/series';

const point = (step: number, value: number): Point => ({ step, value, min: value, max: value, count: 1, generation: 1, at: '' });
const seriesOf = (...points: Point[]): Series => ({ ...emptySeries('x', null), points, total: points.length });

describe('addresses', () => {
  it.each([
    ['', { page: 'jobs' }],
    ['#/jobs?q=a', { page: 'jobs' }],
    ['#/jobs/0197%2Fx', { page: 'job', id: '0197/x' }],
    ['#/plan', { page: 'plan' }],
    ['#/nowhere/else', { page: 'unknown', path: '/nowhere/else' }],
    ['#/jobs/%zz', { page: 'job', id: '%zz' }],
  ])('%s', (hash, route) => expect(parsePlace(hash).route).toEqual(route));
  it('come back as they were said', () => {
    const hash = jobHash('a/b', { steps: '10-20', tab: 'logs', empty: '' });
    expect(parsePlace(hash)).toEqual({ route: { page: 'job', id: 'a/b' }, query: { steps: '10-20', tab: 'logs' } });
    expect(hashOf({ page: 'jobs' }, { q: null })).toBe('#/jobs');
  });
  it('keep a zoom', () => {
    expect(parseWindow(windowText({ from: 3, to: 9 }))).toEqual({ from: 3, to: 9 });
    expect([parseWindow('9-3'), parseWindow('x'), parseWindow(undefined)]).toEqual([null, null, null]);
    expect(roundWindow(19.7, 3.2)).toEqual({ from: 3, to: 20 });
    expect(roundWindow(-5, -4)).toBeNull();
  });
});

describe('a closer look', () => {
  const bucket = (step: number, count: number): Point => ({ ...point(step, 1), count });
  it('is taken only where points stand for several steps', () => {
    expect(detailPoints([point(1, 1), point(2, 1)], { from: 1, to: 2 })).toBeNull();
    expect(detailPoints([bucket(100, 100), point(101, 1)], { from: 101, to: 102 })).toBeNull();
  });
  it('asks for enough that the window is full, and never for too much', () => {
    const points = Array.from({ length: 100 }, (_, i) => bucket((i + 1) * 100, 100));
    expect(detailPoints(points, { from: 0, to: 10_000 })).toBe(1_600);
    expect(detailPoints(points, { from: 2_500, to: 5_000 })).toBe(2_400);
    expect(detailPoints(points, { from: 100, to: 200 })).toBe(5_000);
  });
  it('takes in the neighbours of what is in view', () => {
    expect(aroundOf({ from: 5_000, to: 7_000 })).toEqual({ from: 3_000, to: 9_000 });
    // Every step of it: there are no more than may be asked for.
    expect(aroundOf({ from: 777_770, to: 777_785 })).toEqual({ from: 776_770, to: 778_785 });
    expect(aroundOf({ from: 3, to: 9 }).from).toBe(0);
  });
});

describe('generations', () => {
  const at = (step: number, generation: number, value: number): Point => ({ ...point(step, value), generation, at: `t${step}` });
  it('are read off the workers, with the mean rate of each', () => {
    const workers = seriesOf(at(1, 1, 2), at(2, 1, 2), at(3, 2, 3), at(9, 2, 3));
    const rate = seriesOf(at(1, 1, 10), at(2, 1, 20), at(9, 2, 60));
    expect(generationsOf(workers, rate)).toEqual([
      { generation: 1, workers: 2, from: 1, to: 2, since: 't1', until: 't2', rate: 15 },
      { generation: 2, workers: 3, from: 3, to: 9, since: 't3', until: 't9', rate: 60 },
    ]);
  });
  it('fill the lanes of their ranks, with a cross where a worker was lost', () => {
    const spans = generationsOf(seriesOf(at(2, 1, 2), at(9, 2, 1)), undefined);
    const lost = { id: 1, kind: 'worker_lost', at: '', step: 2, generation: 1, message: 'Rank 1 was lost', payload: { rank: 1 } };
    expect(lanesOf(spans, [lost])).toEqual([
      { rank: 0, bars: [{ generation: 1, from: 1, to: 2 }, { generation: 2, from: 3, to: 9 }], losses: [] },
      { rank: 1, bars: [{ generation: 1, from: 1, to: 2 }], losses: [{ step: 2, what: 'Rank 1 was lost' }] },
    ]);
  });
  it('are none before the first step', () => expect(generationsOf(undefined, undefined)).toEqual([]));
});

describe('rows of a long list', () => {
  it('are only those in view and a few around', () => {
    const rows = rowWindow({ top: 58_000, height: 580, row: 58, count: 10_000, spare: 5 });
    expect(rows).toEqual({ first: 995, end: 1015, above_px: 995 * 58, below_px: (10_000 - 1015) * 58 });
  });
  it('fill the whole height together', () => {
    for (const top of [0, 1, 57, 5000, 1e9]) {
      const w = rowWindow({ top, height: 900, row: 58, count: 200, spare: 8 });
      expect(w.above_px + w.below_px + (w.end - w.first) * 58).toBe(200 * 58);
    }
  });
  it('are none of none', () => expect(rowWindow({ top: 0, height: 900, row: 58, count: 0, spare: 8 })).toMatchObject({ first: 0, end: 0 }));
});

describe('events', () => {
  const event = { id: 1, at: '2026-01-01T00:00:00Z', generation: 1, step: 81 };
  it('say their numbers with units', () => {
    const said = sentence({ ...event, kind: 'resized', payload: { from: 2, to: 3, pause_s: 0.324, redone_steps: 0, moved_bytes: 4_204_800 } });
    expect(said).toBe('resized 2 → 3 workers · pause 324 ms · redone steps 0 · 4.01 MiB moved');
  });
  it('say bounds', () => {
    const said = sentence({ ...event, kind: 'scaled', payload: { from: { min: 1, max: 4 }, to: { min: 3, max: 3 } } });
    expect(said).toBe('scaled 1–4 → 3 workers');
  });
  it('mark charts where they have a step, and keep unknown kinds', () => {
    const markers = markersOf([
      { ...event, kind: 'submitted', step: null, payload: {} },
      { ...event, kind: 'resized', payload: {} },
      { ...event, kind: 'gpu_lost', payload: {} },
    ]);
    expect(markers.map((m) => [m.kind, m.tone, m.tall])).toEqual([
      ['resized', 'change', true],
      ['gpu_lost', 'bad', false],
    ]);
  });
});

describe('marks', () => {
  const event = { id: 1, at: '', generation: 1, step: 81 };
  it('call a change of stage what it is, though it travels as one of scale', () => {
    const bounds = { min: 1, max: 4 };
    const [mark] = markersOf([{ ...event, kind: 'scaled', message: 'Scaled', payload: { from: bounds, to: bounds, from_stage: 2, to_stage: 3 } }]);
    expect(mark).toMatchObject({ kind: 'stage_changed', tall: true, label: 'stage changed 2 → 3 · Scaled' });
  });
  it('are one per checkpoint, not one per line about it', () =>
    expect(markersOf(['checkpoint_started', 'checkpoint_progress', 'checkpoint_saved'].map((kind) => ({ ...event, kind, payload: {} }))).map((m) => m.kind)).toEqual(['checkpoint_saved']));
  it('are made where the count of skipped steps grows, and not again after a rollback', () => {
    const counted = [point(1, 0), point(2, 1), point(3, 1), point(4, 0), point(5, 0), point(6, 3)];
    expect(skipMarkers(counted).map((m) => [m.step, m.tall])).toEqual([[2, true], [6, true]]);
  });
});

describe('lines', () => {
  it('are smoothed from their first value on and not poisoned by NaN', () => {
    expect(smooth([4, 4, 4], 0.9).map((v) => Number(v.toFixed(9)))).toEqual([4, 4, 4]);
    const [, broken, after] = smooth([1, NaN, 1], 0.5);
    expect(broken).toBeNaN();
    expect(after).toBeCloseTo(1);
    expect(smooth([1, 5], 0)).toEqual([1, 5]);
  });
  it('share an axis: exact values, gaps elsewhere, or carried', () => {
    const [a, b] = [seriesOf(point(1, 10), point(3, 30)), seriesOf(point(2, 7))];
    const steps = stepsOf([a, b, undefined]);
    expect(steps).toEqual([1, 2, 3]);
    expect(columnAt(a, steps, (p) => p.value)).toEqual([10, null, 30]);
    expect(carriedColumn(a, steps)).toEqual([10, 30, 30]);
    expect(columnAt(seriesOf(point(1, NaN)), [1], (p) => p.value)).toEqual([null]);
  });
  it('show where they broke and how much of them is drawn', () => {
    expect(brokenSteps(seriesOf(point(1, 1), point(2, NaN)))).toEqual([2]);
    expect(shownText({ ...seriesOf(point(1, 1), point(2, 1)), total: 24 })).toBe('1 of 12 shown, extremes kept');
    expect(shownText({ ...seriesOf(point(1, 1), point(2, 1)), total: 3 })).toBe('2 of 3 shown, extremes kept');
    expect(shownText(seriesOf(point(1, 1)))).toBeNull();
    // 1,000 steps of which the service kept 10, drawn as 2.
    const kept = seriesOf({ ...point(500, 1), count: 5 }, { ...point(1499, 1), count: 5 });
    expect(shownText({ ...kept, total: 10 })).toBe('1 of 500 shown, extremes kept');
  });
  it('stack', () => expect(cumulative([[1, 2], [10, NaN], [100, 200]])).toEqual([[1, 2], [11, 2], [111, 202]]));
  it('fit a small frame with their spikes', () => {
    const path = sparkPath([{ ...point(0, 1), max: 9 }, point(10, 2)], 96, 26);
    expect(path?.line).toBe('M1.0 24.5L95.0 21.6');
    expect(path?.band.startsWith('M1.0 1.5L')).toBe(true);
    expect(sparkPath([point(1, 1)], 96, 26)).toBeNull();
  });
});

describe('the range of an axis', () => {
  it('leaves room around the values, and starts at zero where it should', () => {
    expect(rangeOf(1, 3, false)).toEqual([0.84, 3.16]);
    expect(rangeOf(1, 3, true)).toEqual([0, 3 * 1.12]);
  });
  it('is as wide for what differs by rounding alone as for what does not differ', () => {
    const [low, high] = rangeOf(3, 3 + 4e-16, false);
    expect(high - low).toBeCloseTo(0.48);
    expect(rangeOf(0, 0, false)).toEqual([-0.08, 0.08]);
  });
  it('is there before there is a value', () => expect(rangeOf(null, null, false)).toEqual([0, 1]));
});

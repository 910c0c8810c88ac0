import { describe, expect, it } from 'vitest';
import { adopt, append, emptySeries, KEPT_POINTS, KEPT_RANK_POINTS, pointAt, type Series } from '../src/domain/series';
import type { Point } from '../src/wire/series';

const point = (step: number, value = step, generation = 1, count = 1): Point => ({
  step,
  value,
  min: value,
  max: value,
  count,
  generation,
  at: '2026-01-01T00:00:00Z',
});

function seriesOf(...points: Point[]): Series {
  const series = emptySeries('loss', null);
  points.forEach((p) => append(series, p));
  return series;
}

const steps = (series: Series): number[] => series.points.map((p) => p.step);

describe('a stream of samples', () => {
  it('takes each step once', () => {
    const series = seriesOf(point(1), point(2), point(2), point(3), point(1));
    expect(steps(series)).toEqual([1, 2, 3]);
    expect(series.total).toBe(3);
  });

  it('puts a late step where it belongs', () => expect(steps(seriesOf(point(1), point(4), point(3)))).toEqual([1, 3, 4]));

  it('lets the newest generation win after a rollback, without counting the step twice', () => {
    const series = seriesOf(point(10, 5, 1), point(11, 6, 1), point(10, 4, 2));
    expect(series.points.map((p) => p.value)).toEqual([4, 6]);
    expect(series.total).toBe(2);
    expect(append(series, point(10, 9, 1))).toBe(false);
    expect(pointAt(series, 10)?.value).toBe(4);
  });

  it('knows that a bucket stands for the steps before it', () => {
    const series: Series = { ...emptySeries('loss', null), total: 20, points: [point(10, 1, 1, 10), point(20, 2, 1, 10)] };
    expect(append(series, point(15))).toBe(false);
    expect(append(series, point(15, 3, 2))).toBe(true);
    expect(append(series, point(21))).toBe(true);
    expect(steps(series)).toEqual([10, 15, 20, 21]);
  });

  it('keeps a spike and the true count however long it runs', () => {
    const series = emptySeries('loss', null);
    for (let step = 1; step <= 20_000; step += 1) append(series, point(step, step === 777 ? 1e6 : 1));
    expect(series.points.length).toBeLessThanOrEqual(2 * KEPT_POINTS);
    expect(series.total).toBe(20_000);
    expect(Math.max(...series.points.map((p) => p.max))).toBe(1e6);
    expect(series.points.reduce((sum, p) => sum + p.count, 0)).toBe(20_000);
  });
});

describe('a long stream', () => {
  it('is no coarser at its beginning than in its middle, however often it was thinned', () => {
    const series = emptySeries('loss', null);
    for (let step = 1; step <= 60_000; step += 1) append(series, point(step));
    const between = (from: number, to: number): number => series.points.filter((p) => p.step > from && p.step <= to).length;
    expect(between(0, 15_000)).toBeGreaterThan(0.8 * between(20_000, 35_000));
  });
  it('of one rank is kept in fewer points', () => {
    const series = emptySeries('mem_params_bytes', 3);
    for (let step = 1; step <= 5_000; step += 1) append(series, point(step));
    expect(series.points.length).toBeLessThanOrEqual(2 * KEPT_RANK_POINTS);
    expect(series.total).toBe(5_000);
  });
});

describe('a history fetched while the stream runs', () => {
  const fetched: Series = { ...emptySeries('loss', null), total: 100, points: [point(50, 1, 1, 50), point(100, 2, 1, 50)] };

  it('has neither gap nor duplicate where both overlap', () => {
    const live = seriesOf(point(99), point(100), point(101), point(102));
    const merged = adopt(fetched, live);
    expect(steps(merged)).toEqual([50, 100, 101, 102]);
    expect(merged.total).toBe(102);
  });

  it('comes out the same when it is fetched again', () => {
    const once = adopt(fetched, seriesOf(point(101)));
    const again = adopt({ ...fetched, total: 101, points: [...fetched.points, point(101)] }, once);
    expect(steps(again)).toEqual([50, 100, 101]);
    expect(again.total).toBe(101);
  });

  it('does not bring back a generation that was rolled back', () => {
    const live = seriesOf(point(100, 9, 1), point(101, 9, 1));
    const newer: Series = { ...fetched, total: 101, points: [point(100, 3, 2, 100), point(101, 4, 2)] };
    expect(adopt(newer, live).points.map((p) => p.value)).toEqual([3, 4]);
  });

  it('leaves the fetched answer as it was', () => {
    adopt(fetched, seriesOf(point(200)));
    expect(fetched.points).toHaveLength(2);
  });
});

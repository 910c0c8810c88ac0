import { expect, it } from 'vitest';
import { merged, thin } from '../src/domain/thin';
import type { Point } from '../src/wire/series';

const point = (step: number, value: number): Point => ({ step, value, min: value, max: value, count: 1, generation: 1, at: '' });

it('keeps the extremes, the order and the number of steps', () => {
  const points = Array.from({ length: 10_000 }, (_, i) => point(i, i === 1234 ? -50 : i === 4321 ? 99 : 1));
  const fewer = thin(points, 200);
  expect(fewer.length).toBeLessThanOrEqual(200);
  expect(Math.min(...fewer.map((p) => p.min))).toBe(-50);
  expect(Math.max(...fewer.map((p) => p.max))).toBe(99);
  expect(fewer.reduce((sum, p) => sum + p.count, 0)).toBe(10_000);
  expect(fewer.at(-1)).toEqual(points.at(-1));
  expect(fewer.every((p, i) => i === 0 || p.step > (fewer[i - 1] as Point).step)).toBe(true);
});

it('leaves alone what is few enough', () => {
  const points = [point(1, 1), point(2, 2)];
  expect(thin(points, 2)).toEqual(points);
});

it('takes the extremes of the numbers where some are none', () => {
  expect(merged([point(1, 3), point(2, NaN), point(3, 5)])).toMatchObject({ min: 3, max: 5, count: 3, value: 5 });
  expect(merged([point(1, NaN)]).min).toBeNaN();
});

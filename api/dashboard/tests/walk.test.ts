import { expect, it } from 'vitest';
import { walked } from '../src/domain/walk';
import type { Point } from '../src/wire/series';

const points = [1, 2, 4, 8, 16].map((step): Point => ({ step, value: 0, min: 0, max: 0, count: 1, generation: 1, at: '' }));
const all = { from: 0, to: 99 };

it('goes from point to point and stops at the ends', () => {
  expect(walked(points, all, 4, 1)).toBe(8);
  expect(walked(points, all, 4, -1)).toBe(2);
  expect(walked(points, all, 8, 10)).toBe(16);
  expect(walked(points, all, 2, -10)).toBe(1);
});

it('begins at the side that it comes from', () => {
  expect(walked(points, all, null, 1)).toBe(1);
  expect(walked(points, all, null, -1)).toBe(16);
});

it('stays inside the zoom', () => {
  expect(walked(points, { from: 2, to: 8 }, 8, 1)).toBe(8);
  expect(walked(points, { from: 2, to: 8 }, null, 1)).toBe(2);
  expect(walked(points, { from: 50, to: 60 }, 4, 1)).toBeNull();
});

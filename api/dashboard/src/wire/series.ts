/** Metrics as the API says them: downsampled series on load, samples on the stream. */

/** `value` is the last of the bucket; `min` and `max` its extremes; `count` how many steps it stands for. */
export interface Point {
  step: number;
  value: number;
  min: number;
  max: number;
  count: number;
  generation: number;
  at: string;
}

export interface SeriesAnswer {
  name: string;
  rank: number | null;
  unit: string | null;
  total: number;
  shown: number;
  points: RawPoint[];
}

/** JSON has no NaN: a number that is none arrives as null or as a word. */
export type RawNumber = number | string | null;

export interface RawPoint {
  step: number;
  value: RawNumber;
  min?: RawNumber;
  max?: RawNumber;
  count?: number;
  generation: number;
  at: string;
}

export interface SampleItem {
  name: string;
  rank: number | null;
  step: number;
  generation: number;
  value: RawNumber;
  at: string;
}

/** NaN for null and "NaN", ±Infinity for their words. */
export function toNumber(raw: RawNumber | undefined): number {
  if (typeof raw === 'number') return raw;
  return raw === null || raw === undefined ? NaN : Number(raw);
}

export function toPoint(raw: RawPoint): Point {
  const value = toNumber(raw.value);
  return {
    step: raw.step,
    value,
    min: raw.min === undefined ? value : toNumber(raw.min),
    max: raw.max === undefined ? value : toNumber(raw.max),
    count: raw.count ?? 1,
    generation: raw.generation,
    at: raw.at,
  };
}

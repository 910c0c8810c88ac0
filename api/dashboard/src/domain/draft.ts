/** A spec while it is written: values by path, short forms, the address and text it travels in. */

import type { JobSpec } from '../wire/job';

type Fields = Record<string, unknown>;

const isFields = (value: unknown): value is Fields => typeof value === 'object' && value !== null && !Array.isArray(value);

/** What a short form says of its long one: `offload: cpu` is `offload: {optimizer: cpu}`. */
const SHORT: Readonly<Record<string, readonly string[]>> = { offload: ['optimizer'], precision: ['params'], workers: ['min', 'max'] };

function opened(spec: JobSpec, path: string): JobSpec {
  const [name = '', ...rest] = path.split('.');
  const said = spec[name];
  const fields = SHORT[name];
  if (!rest.length || !fields || said === undefined || isFields(said)) return spec;
  return { ...spec, [name]: Object.fromEntries(fields.map((field) => [field, said])) };
}

export function valueAt(spec: JobSpec, path: string): unknown {
  return path.split('.').reduce<unknown>((node, name) => (isFields(node) ? node[name] : undefined), opened(spec, path));
}

/** A new spec; undefined takes the field out, and objects that became empty with it. */
export function withValue(spec: JobSpec, path: string, value: unknown): JobSpec {
  return changed(opened(spec, path), path.split('.'), value) as JobSpec;
}

function changed(node: unknown, [name = '', ...rest]: string[], value: unknown): Fields {
  const next: Fields = isFields(node) ? { ...node } : {};
  const inner = rest.length ? changed(next[name], rest, value) : value;
  if (inner === undefined || (rest.length && isFields(inner) && !Object.keys(inner).length)) delete next[name];
  else next[name] = inner;
  return next;
}

/** A spec that the service filled with defaults, back in the words a person would use. */
export function shortened(spec: JobSpec): JobSpec {
  const next = without(spec, (value) => value === null) as Fields;
  const { precision, offload, workers } = next as { precision?: unknown; offload?: unknown; workers?: unknown };
  // Only fp16 has a loss scale that could have been chosen.
  if (isFields(precision) && precision['reduce'] === 'fp32' && precision['buffers'] === 'fp32' && precision['params'] !== 'fp16') next['precision'] = precision['params'];
  if (isFields(offload) && offload['params'] === undefined && offload['path'] === undefined && offload['ratio'] === 1) next['offload'] = offload['optimizer'];
  if (typeof workers === 'number') next['workers'] = { min: workers, max: workers };
  return next as JobSpec;
}

/** The spec of a job once more, beginning with `start` (JOB@STEP) where one is given. */
export function again(spec: JobSpec, start: string | null): JobSpec {
  const next = shortened(spec);
  return start === null ? next : { ...next, from: start };
}

function without(value: unknown, drop: (value: unknown) => boolean): unknown {
  if (!isFields(value)) return value;
  const kept = Object.entries(value).filter(([, inner]) => !drop(inner));
  return Object.fromEntries(kept.map(([name, inner]) => [name, without(inner, drop)]));
}

export function parseSpec(text: string): JobSpec | null {
  try {
    const value: unknown = JSON.parse(text);
    return isFields(value) ? (value as unknown as JobSpec) : null;
  } catch {
    return null;
  }
}

export interface Difference {
  path: string;
  values: readonly string[];
}

/** Fields in which specs are not all the same, with a dash where one has no such field. */
export function differences(specs: readonly JobSpec[]): Difference[] {
  const flat = specs.map((spec) => new Map(leaves(spec, '')));
  const paths = [...new Set(flat.flatMap((one) => [...one.keys()]))].sort();
  const rows = paths.map((path) => ({ path, values: flat.map((one) => one.get(path) ?? '–') }));
  return rows.filter((row) => new Set(row.values).size > 1);
}

function leaves(value: unknown, path: string): [string, string][] {
  if (!isFields(value)) return [[path, typeof value === 'string' ? value : JSON.stringify(value)]];
  return Object.entries(value).flatMap(([name, inner]) => leaves(inner, path ? `${path}.${name}` : name));
}

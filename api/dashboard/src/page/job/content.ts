/** What each chart of a job draws and what its head reads. Pure but for the reads of the view's series. */

import type { Layer } from '../../chart/options';
import type { PlotContent, Reading } from '../../chart/plot';
import { brokenSteps, carriedColumn, columnAt, shownText, stepsOf, type Column } from '../../domain/align';
import { duration, figure } from '../../domain/format';
import { cumulative } from '../../domain/memory';
import { pointAt, type Series } from '../../domain/series';
import { smooth } from '../../domain/smooth';
import type { JobView } from '../../store/jobview';

export const at = (series: Series | undefined, step: number | null): number | null => {
  const point = step === null ? series?.points.at(-1) : pointAt(series, step);
  return point ? point.value : null;
};

const covered = (series: Series | undefined): number => series?.points.reduce((sum, p) => sum + p.count, 0) ?? 0;

/** Outlined where a point stands for several steps, so that a spike of one of them is a line and not a shade. */
function extremes(series: Series | undefined, ink: string): Layer[] {
  const bucketed = series?.points.some((point) => point.count > 1) ?? false;
  const look = bucketed ? { width: 1, alpha: 0.4 } : { width: 0 };
  return [
    { key: `max ${bucketed}`, ink, ...look, bandToNext: true, fill: 0.22 },
    { key: `min ${bucketed}`, ink, ...look },
  ];
}

/** "12 steps: 2.31 to 9.80": what the point under the pointer stands for, where that is more than itself. */
function rangeAt(series: Series | undefined, step: number | null, say: (value: number) => string): Reading[] {
  const point = step === null ? undefined : pointAt(series, step);
  return point && point.count > 1 ? [{ label: `${point.count} steps`, text: `${say(point.min)} to ${say(point.max)}` }] : [];
}

/** The raw line with its extremes, and the smoothed one over it. */
export function lossContent(view: JobView, smoothing: number): PlotContent {
  void view.version.value;
  const series = view.drawn('loss');
  const steps = stepsOf([series]);
  const raw = columnAt(series, steps, (p) => p.value);
  const smoothed: Column = smooth(raw.map((v) => v ?? NaN), smoothing).map((v) => (Number.isFinite(v) ? v : null));
  const ink = '--series-1';
  const layers: Layer[] = [...extremes(series, ink), { key: 'raw', ink, width: smoothing > 0 ? 1 : 1.5, alpha: smoothing > 0 ? 0.5 : 1 }];
  const data = [steps, columnAt(series, steps, (p) => p.max), columnAt(series, steps, (p) => p.min), raw];
  if (smoothing > 0) {
    layers.push({ key: 'smooth', ink, width: 2 });
    data.push(smoothed);
  }
  const read = (step: number | null): Reading[] => {
    const value = at(series, step);
    if (value === null) return [];
    const index = step === null ? steps.length - 1 : nearest(steps, step);
    const head: Reading[] = [{ label: step === null ? 'now' : `step ${steps[index] ?? step}`, text: figure(value), ink }, ...rangeAt(series, step, figure)];
    return smoothing > 0 ? [...head, { label: 'smoothed', text: figure(smoothed[index]) }] : head;
  };
  return { layers, data: data as PlotContent['data'], broken: brokenSteps(series), note: shownText(series), covered: covered(series), read };
}

function nearest(steps: readonly number[], step: number): number {
  const index = steps.findIndex((s) => s >= step);
  return index < 0 ? steps.length - 1 : index;
}

/** One series with its extremes. */
export function lineContent(view: JobView, name: string, label: string, ink: string, say: (value: number) => string): PlotContent {
  void view.version.value;
  const series = view.drawn(name);
  const steps = stepsOf([series]);
  const columns = [columnAt(series, steps, (p) => p.max), columnAt(series, steps, (p) => p.min), columnAt(series, steps, (p) => p.value)];
  return {
    layers: [...extremes(series, ink), { key: 'line', ink, width: 1.5 }],
    data: [steps, ...columns] as PlotContent['data'],
    broken: brokenSteps(series),
    note: shownText(series),
    covered: covered(series),
    read: (step) => {
      const value = at(series, step);
      return value === null ? [] : [{ label: step === null ? label : `step ${step}`, text: say(value), ink }, ...rangeAt(series, step, say)];
    },
  };
}

export function workersContent(view: JobView): PlotContent {
  void view.version.value;
  const series = view.drawn('workers');
  const steps = stepsOf([series]);
  const ink = '--series-3';
  return {
    layers: [{ key: 'workers', ink, width: 2, stairs: 'back', fill: 0.14 }],
    data: [steps, columnAt(series, steps, (p) => p.value)] as PlotContent['data'],
    note: shownText(series),
    read: (step) => {
      const value = at(series, step);
      return value === null ? [] : [{ label: step === null ? 'at work' : `step ${step}`, text: String(value), ink }];
    },
  };
}

interface Slab {
  key: string;
  label: string;
  ink: string;
  series: Series | undefined;
}

/** Areas stacked on each other, drawn from the highest sum to the lowest, so that each covers what is below it. */
function stacked(slabs: readonly Slab[], steps: readonly number[], look: Partial<Layer> = {}): { layers: Layer[]; columns: number[][] } {
  const tops = cumulative(slabs.map((slab) => carriedColumn(slab.series, steps)));
  const layers = slabs.map((slab) => ({ key: slab.key, ink: slab.ink, width: 1, solid: true, ...look }));
  return { layers: layers.reverse(), columns: tops.reverse() };
}

const readSlabs = (slabs: readonly Slab[], step: number | null, say: (v: number) => string): Reading[] =>
  slabs.flatMap((slab) => {
    const value = at(slab.series, step);
    return value === null ? [] : [{ label: slab.label, text: say(value), ink: slab.ink }];
  });

export function stepTimeContent(view: JobView): PlotContent {
  void view.version.value;
  const parts = [
    ['compute_s', 'compute', '--series-1'],
    ['comm_s', 'communication', '--series-2'],
    ['data_s', 'data', '--series-4'],
    ['optimizer_s', 'optimizer', '--series-3'],
  ] as const;
  const slabs = parts.map(([name, label, ink]) => ({ key: name, label, ink, series: view.drawn(name) })).filter((slab) => slab.series);
  const whole = view.drawn('step_s');
  const steps = stepsOf([whole ?? slabs[0]?.series]);
  const { layers, columns } = stacked(slabs, steps);
  return {
    layers: [...layers, ...extremes(whole, '--ink'), { key: 'step_s', ink: '--ink', width: 1.25 }],
    data: [steps, ...columns, ...(['max', 'min', 'value'] as const).map((of) => columnAt(whole, steps, (p) => p[of]))] as PlotContent['data'],
    note: shownText(whole),
    read: (step) => {
      const value = at(whole, step);
      const total: Reading[] = value === null ? [] : [{ label: 'step', text: duration(value), ink: '--ink' }, ...rangeAt(whole, step, duration)];
      return [...total, ...readSlabs(slabs, step, duration)];
    },
  };
}

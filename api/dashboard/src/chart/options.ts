/** From what a chart should show to the options of uPlot. */

import uPlot from 'uplot';
import { stepLabels } from '../domain/format';
import { rangeOf } from '../domain/range';
import { ink, tint } from './ink';
import type { PlotProps } from './plot';

/** A line or an area of a chart; `key` tells when the set of lines has changed. */
export interface Layer {
  key: string;
  ink: string;
  alpha?: number;
  width?: number;
  dash?: number[];
  /** Filled down to the axis, in this strength. */
  fill?: number;
  /** Filled down to the axis so that nothing shines through: what is stacked lies in front. */
  solid?: boolean;
  /** In stairs: a value stands back to the point before it, or on until the next. */
  stairs?: 'back' | 'on';
  /** Joined over points that only other layers have. */
  spanGaps?: boolean;
  /** Filled between this layer and the next one; used for the extremes of buckets. */
  bandToNext?: boolean;
}

export interface PlotHooks {
  draw(u: uPlot): void;
  moved(u: uPlot, step: number | null, hovered: boolean): void;
  selected(from: number, to: number): void;
  reset(): void;
}

const AXIS_FONT = '11px system-ui, sans-serif';
const AXIS_WIDTH = 52;
/** Half a step in full, which stands under the right edge. */
const LAST_LABEL = 24;

export function optionsOf(props: PlotProps, layers: readonly Layer[], { width, height }: { width: number; height: number }, hooks: PlotHooks): uPlot.Options {
  return {
    width: Math.max(120, width),
    height: Math.max(80, height),
    padding: [6, LAST_LABEL, 0, 0],
    legend: { show: false },
    cursor: {
      sync: { key: props.group ?? 'step', scales: ['x', null] },
      drag: { x: true, y: false, setScale: false, dist: 6 },
      points: { show: false },
      bind: { dblclick: () => () => (hooks.reset(), null) },
    },
    scales: { x: { time: false, range: () => viewRange(props) }, y: yScale(props) },
    axes: [xAxis(props), yAxis(props)],
    series: [{}, ...layers.map((layer) => seriesOf(layer))],
    bands: layers.flatMap((layer, i) =>
      layer.bandToNext ? [{ series: [i + 1, i + 2] as [number, number], fill: ink(layer.ink, layer.fill ?? 0.2) }] : [],
    ),
    hooks: {
      draw: [hooks.draw],
      setCursor: [(u) => onCursor(u, hooks)],
      setSelect: [(u) => onSelect(u, hooks)],
    },
  };
}

function viewRange(props: PlotProps): [number, number] {
  const { from, to } = props.view.peek();
  return [from, Math.max(to, from + 1)];
}

function yScale(props: PlotProps): uPlot.Scale {
  if (props.log) return { distr: 3 };
  return { range: (_u, low, high) => rangeOf(low, high, props.fromZero ?? false) };
}

const axisLook = (): Partial<uPlot.Axis> => ({
  stroke: ink('--ink-soft'),
  font: AXIS_FONT,
  grid: { stroke: ink('--line'), width: 1 },
  ticks: { show: false },
});

function xAxis(props: PlotProps): uPlot.Axis {
  const { across } = props;
  const values = (_u: uPlot, splits: number[]): (string | null)[] => (across ? splits.map(across) : stepLabels(splits));
  return { ...axisLook(), size: 24, gap: 4, space: 64, values, grid: { show: false } };
}

function yAxis(props: PlotProps): uPlot.Axis {
  const values = (_u: uPlot, splits: (number | null)[]): (string | null)[] => splits.map((v) => (v === null ? null : props.axis(v)));
  const axis: uPlot.Axis = { ...axisLook(), size: AXIS_WIDTH, gap: 4, space: 32, values };
  if (props.ticks) axis.incrs = [...props.ticks];
  return axis;
}

function seriesOf(layer: Layer): uPlot.Series {
  const series: uPlot.Series = {
    stroke: layer.width === 0 ? 'transparent' : ink(layer.ink, layer.alpha),
    width: layer.width ?? 1.5,
    points: { show: false },
    spanGaps: layer.spanGaps ?? false,
  };
  if (layer.dash) series.dash = layer.dash;
  if (layer.solid) series.fill = tint(layer.ink, 0.62);
  else if (layer.fill !== undefined && !layer.bandToNext) series.fill = ink(layer.ink, layer.fill);
  if (layer.stairs && uPlot.paths.stepped) series.paths = uPlot.paths.stepped({ align: layer.stairs === 'on' ? 1 : -1 });
  return series;
}

function onCursor(u: uPlot, hooks: PlotHooks): void {
  const { left, event } = u.cursor;
  const hovered = u.over.matches(':hover') || event?.target === u.over;
  const inside = left !== undefined && left !== null && left >= 0;
  hooks.moved(u, inside ? Math.round(u.posToVal(left, 'x')) : null, hovered || !inside);
}

function onSelect(u: uPlot, hooks: PlotHooks): void {
  const { left, width } = u.select;
  if (width < 6) return;
  hooks.selected(u.posToVal(left, 'x'), u.posToVal(left + width, 'x'));
  u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
}

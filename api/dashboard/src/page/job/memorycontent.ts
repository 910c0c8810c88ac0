/** What the charts of a rank's memory draw: one tier by kind, with what the planner predicted as a dashed line. */

import type { Layer } from '../../chart/options';
import type { PlotContent, Reading } from '../../chart/plot';
import { carriedColumn, shownText, stepsOf } from '../../domain/align';
import { bytes, text } from '../../domain/format';
import { cumulative, KIND_METRIC, MEMORY_KINDS } from '../../domain/memory';
import type { Series } from '../../domain/series';
import { byTier, TIER_KIND_LABEL, TIER_KINDS, type ByKind, type Tier, type TierKind } from '../../domain/tiers';
import type { JobView } from '../../store/jobview';
import { at } from './content';

export function memoryContent(view: JobView, rank: number, tier: Tier): PlotContent {
  void view.version.value;
  const measured = MEMORY_KINDS.map((kind) => [kind, view.drawn(KIND_METRIC[kind], rank)] as const).filter(([, series]) => series);
  const far = { host: view.drawn('mem_host_bytes', rank), nvme: view.drawn('mem_nvme_bytes', rank) };
  const predicted = view.drawn('mem_predicted_bytes', rank);
  const steps = stepsOf([...measured.map(([, series]) => series), predicted]);
  const columns = new Map<string, number[]>(measured.map(([kind, series]) => [kind, carriedColumn(series, steps)]));
  const [host, nvme] = [carriedColumn(far.host, steps), carriedColumn(far.nvme, steps)];
  const held = steps.map((_, i) => placedAt(view, Object.fromEntries([...columns].map(([kind, column]) => [kind, column[i]])), host[i], nvme[i])[tier]);
  const kinds = TIER_KINDS.filter((kind) => held.some((one) => (one[kind] ?? 0) > 0) || (tier === 'device' && columns.has(kind)));
  const tops = cumulative(kinds.map((kind) => held.map((one) => one[kind] ?? 0)));
  const planned = plannedAt(view, tier, view.tiers().length === 1 ? predicted : undefined);
  const layers: Layer[] = kinds.map((kind) => ({ key: kind, ink: `--kind-${kind}`, width: 1, solid: true, stairs: 'on' as const }));
  return {
    layers: [...layers.reverse(), { key: 'predicted', ink: '--ink', width: 1.5, dash: [5, 4], stairs: 'on' }],
    data: [steps, ...tops.reverse(), steps.map(planned)] as PlotContent['data'],
    note: shownText(measured[0]?.[1]),
    read: (step) => readings(kinds, readAt(view, measured, far, step, tier), planned(step)),
  };
}

/** The recorded prediction is of all tiers together; where there are several, and where it is not recorded, the plan of each size says. */
const plannedAt =
  (view: JobView, tier: Tier, recorded: Series | undefined) =>
  (step: number | null): number | null =>
    recorded ? at(recorded, step) : view.predicted(at(view.drawn('workers'), step) ?? 0, tier);

type Measured = readonly (readonly [TierKind, Series | undefined])[];

function readAt(view: JobView, measured: Measured, far: { host: Series | undefined; nvme: Series | undefined }, step: number | null, tier: Tier): ByKind {
  const kinds = Object.fromEntries(measured.map(([kind, series]) => [kind, at(series, step) ?? 0]));
  return measured.some(([, series]) => at(series, step) !== null) ? placedAt(view, kinds, at(far.host, step), at(far.nvme, step))[tier] : {};
}

const finite = (value: number | null | undefined): number => (value !== null && value !== undefined && Number.isFinite(value) ? value : 0);

const placedAt = (view: JobView, kinds: ByKind, host: number | null | undefined, nvme: number | null | undefined): Record<Tier, ByKind> =>
  byTier(kinds, { host: finite(host), nvme: finite(nvme) }, view.resting.value);

function readings(kinds: readonly TierKind[], held: ByKind, planned: number | null): Reading[] {
  const say = (value: number): string => text(bytes(value));
  const parts = kinds.filter((kind) => held[kind] !== undefined).map((kind) => ({ label: TIER_KIND_LABEL[kind], text: say(held[kind] ?? 0), ink: `--kind-${kind}` }));
  return planned === null ? parts : [...parts, { label: 'predicted', text: say(planned), ink: '--ink', dashed: true }];
}

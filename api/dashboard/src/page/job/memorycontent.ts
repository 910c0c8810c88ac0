/** What the charts of a rank's memory draw: one tier by kind, with what the planner predicted as a dashed line. */

import type { Layer } from '../../chart/options';
import type { PlotContent, Reading } from '../../chart/plot';
import { shownText, stepsOf } from '../../domain/align';
import { bytes, text } from '../../domain/format';
import { cumulative, KIND_METRIC, MEMORY_KINDS, type MemoryKind } from '../../domain/memory';
import { pointAt, type Series } from '../../domain/series';
import { byTier, TIER_KIND_LABEL, TIER_KINDS, withOther, type ByKind, type Tier, type TierKind } from '../../domain/tiers';
import type { JobView } from '../../store/jobview';
import { at } from './content';

/** `other`: with what the process holds beside its kinds. */
export function memoryContent(view: JobView, rank: number, tier: Tier, other: boolean): PlotContent {
  void view.version.value;
  const measured = measuredOf(view, rank);
  const predicted = view.drawn('mem_predicted_bytes', rank);
  const steps = stepsOf([...measured.kinds.map(([, series]) => series), predicted]);
  // Of a bucket its largest: a rank that filled its memory for one step must be seen.
  const held = steps.map((step) => heldOn(view, measured, tier, other, (series) => (series ? (pointAt(series, step)?.max ?? null) : null)));
  const known = new Set<TierKind>(measured.kinds.map(([kind]) => kind));
  const kinds = TIER_KINDS.filter((kind) => held.some((one) => (one[kind] ?? 0) > 0) || (tier === 'device' && known.has(kind)));
  const tops = cumulative(kinds.map((kind) => held.map((one) => one[kind] ?? 0)));
  const planned = plannedAt(view, tier, view.tiers().length === 1 ? predicted : undefined);
  const layers: Layer[] = kinds.map((kind) => ({ key: kind, ink: `--kind-${kind}`, width: 1, solid: true, stairs: 'on' as const }));
  return {
    layers: [...layers.reverse(), { key: 'predicted', ink: '--ink', width: 1.5, dash: [5, 4], stairs: 'on' }],
    data: [steps, ...tops.reverse(), steps.map(planned)] as PlotContent['data'],
    note: shownText(measured.kinds[0]?.[1]),
    read: (step) => readings(kinds, heldOn(view, measured, tier, other, (series) => at(series, step)), planned(step)),
  };
}

interface Measured {
  kinds: readonly (readonly [MemoryKind, Series | undefined])[];
  host: Series | undefined;
  nvme: Series | undefined;
  process: Series | undefined;
}

function measuredOf(view: JobView, rank: number): Measured {
  const kinds = MEMORY_KINDS.map((kind) => [kind, view.drawn(KIND_METRIC[kind], rank)] as const).filter(([, series]) => series);
  const far = (name: string): Series | undefined => view.drawn(name, rank);
  return { kinds, host: far('mem_host_bytes'), nvme: far('mem_nvme_bytes'), process: far('mem_process_bytes') };
}

/** The recorded prediction is of all tiers together; where there are several, and where it is not recorded, the plan of each size says. */
const plannedAt =
  (view: JobView, tier: Tier, recorded: Series | undefined) =>
  (step: number | null): number | null =>
    recorded ? at(recorded, step) : view.predicted(at(view.drawn('workers'), step) ?? 0, tier);

/** What the tier holds, however each series is read; nothing where no kind can be. */
function heldOn(view: JobView, measured: Measured, tier: Tier, other: boolean, read: (series: Series | undefined) => number | null): ByKind {
  const values = measured.kinds.map(([kind, series]) => [kind, read(series)] as const);
  if (values.every(([, value]) => value === null)) return {};
  const kinds: ByKind = Object.fromEntries(values.map(([kind, value]) => [kind, finite(value)]));
  const placed = byTier(kinds, { host: finite(read(measured.host)), nvme: finite(read(measured.nvme)) }, view.resting.value);
  return (other ? withOther(placed, finite(read(measured.process)), view.onCpu.value) : placed)[tier];
}

const finite = (value: number | null): number => (value !== null && Number.isFinite(value) ? value : 0);

function readings(kinds: readonly TierKind[], held: ByKind, planned: number | null): Reading[] {
  const say = (value: number): string => text(bytes(value));
  const parts = kinds.filter((kind) => held[kind] !== undefined).map((kind) => ({ label: TIER_KIND_LABEL[kind], text: say(held[kind] ?? 0), ink: `--kind-${kind}` }));
  return planned === null ? parts : [...parts, { label: 'predicted', text: say(planned), ink: '--ink', dashed: true }];
}

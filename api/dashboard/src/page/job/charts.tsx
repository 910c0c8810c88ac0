/** The charts of a job on one axis of steps: one pointer, one zoom, one set of markers for all. */

import { computed, useComputed, useSignalEffect, type ReadonlySignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { Plot, type PlotContent, type PlotProps } from '../../chart/plot';
import { TIER_LABEL, TIERS, type Tier } from '../../domain/tiers';
import { windowText, parseWindow, type StepWindow } from '../../domain/zoom';
import type { JobView } from '../../store/jobview';
import { place, setQuery } from '../../store/place';
import { MemoryPanel } from './memory';
import { useChartKeys } from './keys';
import { lossContent, lineContent, stepTimeContent, workersContent } from './content';
import { memoryContent } from './memorycontent';
import { bytes, duration, figure, short, text, tick } from '../../domain/format';

const SMOOTHINGS = [0, 0.6, 0.9, 0.97] as const;

/** What the reader chose, which the address keeps. */
interface Chosen {
  smoothing: ReadonlySignal<number>;
  rank: ReadonlySignal<number>;
  other: ReadonlySignal<boolean>;
}

const contentsOf = (view: JobView, { smoothing, rank, other }: Chosen) => ({
  loss: computed(() => lossContent(view, smoothing.value)),
  rate: computed(() => lineContent(view, 'tokens_per_s', 'tokens/s', '--series-2', (v) => `${short(v)} tokens/s`)),
  time: computed(() => stepTimeContent(view)),
  memory: Object.fromEntries(TIERS.map((tier) => [tier, computed(() => memoryContent(view, rank.value, tier, other.value))])) as Record<Tier, ReadonlySignal<PlotContent>>,
  workers: computed(() => workersContent(view)),
  norm: computed(() => lineContent(view, 'grad_norm', 'gradient norm', '--series-4', figure)),
  lr: computed(() => lineContent(view, 'lr', 'learning rate', '--series-5', figure)),
  mfu: computed(() => lineContent(view, 'mfu', 'model FLOPs used', '--series-3', (v) => `${(100 * v).toFixed(1)} %`)),
});

export function Charts({ view }: { view: JobView }) {
  const window = useComputed<StepWindow>(() => windowOf(view));
  useSignalEffect(() => {
    void view.metricsLoaded.value;
    void view.detail.look(parseWindow(place.value.query['steps']), view.get('loss'));
  });
  const smoothing = useComputed(() => Number(place.value.query['smooth'] ?? 0.6));
  const rank = useComputed(() => Number(place.value.query['rank'] ?? 0));
  const other = useComputed(() => place.value.query['other'] === '1');
  useSignalEffect(() => {
    if (other.value) void view.learnSlotKind();
  });
  useChartKeys({ leave: () => zoom(null), points: () => view.drawn('loss')?.points ?? [], window: () => window.peek() });
  void view.version.value;

  const chosen = { smoothing, rank, other };
  const contents = useMemo(() => contentsOf(view, chosen), [view]);
  const frame = { markers: view.markers, view: window, onZoom: zoom };
  return (
    <div class="charts-area">
      <Tools view={view} chosen={chosen} />
      <div class="charts" data-testid="charts">
        <div class="chart-wide">
          <Plot title="Loss" axis={tick} log={isLog()} content={contents.loss} {...frame} />
        </div>
        <Plot title="Throughput" axis={short} fromZero content={contents.rate} {...frame} />
        {tiersShown(view, other.value).map((tier) => (
          <Plot key={tier} title={memoryTitle(rank.value, tier)} axis={byteAxis} ticks={BYTE_TICKS} fromZero content={contents.memory[tier]} {...frame} />
        ))}
        <Plot title="Step time" axis={timeAxis} fromZero content={contents.time} {...frame} />
        <Plot title="Workers" axis={String} ticks={WHOLE_TICKS} fromZero content={contents.workers} {...frame} />
        <Plot title="Gradient norm" axis={tick} content={contents.norm} {...frame} />
        <Plot title="Learning rate" axis={tick} fromZero content={contents.lr} {...frame} />
        <MemoryPanel view={view} />
        {view.get('mfu') && <Mfu {...frame} content={contents.mfu} />}
      </div>
    </div>
  );
}

/** The steps that the address names, else all there are. */
function windowOf(view: JobView): StepWindow {
  void view.version.value;
  return parseWindow(place.value.query['steps']) ?? { from: 0, to: Math.max(1, view.job.value?.step ?? 0, lastStep(view)) };
}

const zoom = (to: StepWindow | null): void => setQuery({ steps: windowText(to) });
const isLog = (): boolean => place.value.query['loss'] === 'log';

function Tools({ view, chosen }: { view: JobView; chosen: Chosen }) {
  const { smoothing, rank, other } = chosen;
  const zoomed = parseWindow(place.value.query['steps']);
  const ranks = view.ranksOf('mem_params_bytes');
  return (
    <div class="chart-tools">
      <label>
        smoothing
        <select value={String(smoothing.value)} onChange={(e) => setQuery({ smooth: e.currentTarget.value })}>
          {SMOOTHINGS.map((s) => (
            <option key={s} value={String(s)}>
              {s === 0 ? 'none' : s}
            </option>
          ))}
        </select>
      </label>
      <Check is={isLog()} set={(on) => setQuery({ loss: on ? 'log' : null })} label="log loss" />
      <label>
        memory of
        <select value={String(rank.value)} onChange={(e) => setQuery({ rank: e.currentTarget.value })}>
          {(ranks.length ? ranks : [0]).map((r) => (
            <option key={r} value={String(r)}>
              rank {r}
            </option>
          ))}
        </select>
      </label>
      <Check is={other.value} set={(on) => setQuery({ other: on ? '1' : null })} label="other" title="What the process holds beside the kinds" />
      <span class="chart-hint">{zoomed ? <Zoomed to={zoomed} /> : 'drag to zoom, double-click for the whole run'}</span>
    </div>
  );
}

function Check({ is, set, label, title }: { is: boolean; set: (on: boolean) => void; label: string; title?: string }) {
  return (
    <label title={title}>
      <input type="checkbox" checked={is} onChange={(e) => set(e.currentTarget.checked)} /> {label}
    </label>
  );
}

function Zoomed({ to: window }: { to: StepWindow }) {
  return (
    <>
      steps {window.from} to {window.to}{' '}
      <button type="button" class="button quiet" onClick={() => zoom(null)}>
        Whole run
      </button>
    </>
  );
}

function Mfu(props: Pick<PlotProps, 'content' | 'markers' | 'view' | 'onZoom'>) {
  return <Plot title="MFU" axis={(v) => `${(100 * v).toFixed(0)} %`} fromZero {...props} />;
}

const memoryTitle = (rank: number, tier: Tier): string => (tier === 'device' ? `Memory of rank ${rank}` : `Memory of rank ${rank} ${TIER_LABEL[tier]}`);
const byteAxis = (value: number): string => text(bytes(value)).replace(/\.0+ /, ' ');
const timeAxis = (value: number): string => duration(value).replace(/\.0+ /, ' ');
/** Powers of two, so that the axis says 4, 8, 12 MiB. */
const BYTE_TICKS = Array.from({ length: 44 }, (_, i) => 2 ** i);
const WHOLE_TICKS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

/** On a GPU the rest of the process is in host memory, whether or not anything is offloaded there. */
function tiersShown(view: JobView, other: boolean): readonly Tier[] {
  const tiers = view.tiers();
  return TIERS.filter((tier) => tiers.includes(tier) || (tier === 'host' && other && !view.onCpu.value));
}

function lastStep(view: JobView): number {
  return view.get('loss')?.points.at(-1)?.step ?? 0;
}

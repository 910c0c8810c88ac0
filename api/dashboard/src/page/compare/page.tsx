/** Several jobs over each other, and in what their specs differ. */

import { useComputed, useSignalEffect } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import type { Layer } from '../../chart/options';
import { Plot, type PlotContent } from '../../chart/plot';
import { differences, shortened } from '../../domain/draft';
import { bytes, duration, figure, short, text, tick } from '../../domain/format';
import { matches, modelLabel } from '../../domain/jobfilter';
import { AXES, overlay, valueAtPlace, type OverlayAxis } from '../../domain/overlay';
import { jobHash } from '../../domain/route';
import { StateBadge } from '../../part/badge';
import { Empty, Fault } from '../../part/views';
import { Comparison } from '../../store/comparison';
import { place, setQuery } from '../../store/place';
import { titleOf } from '../../wire/job';

const METRICS = [
  ...['loss', 'grad_norm', 'lr', 'tokens_per_s', 'step_s', 'compute_s', 'comm_s', 'data_s', 'optimizer_s', 'workers', 'mfu', 'skipped_steps'],
  ...['mem_params_bytes', 'mem_optimizer_bytes', 'mem_process_bytes', 'mem_host_bytes', 'mem_nvme_bytes', 'comm_bytes'],
] as const;
/** Of metrics that each rank measures, that of the first is drawn. */
const nameOf = (metric: string): string => (metric.endsWith('_bytes') ? `${metric} of rank 0` : metric);
const INKS = ['--series-1', '--series-2', '--series-4', '--series-3', '--series-5'] as const;
const inkOf = (index: number): string => INKS[index % INKS.length] ?? '--series-1';

const idsOf = (query: Readonly<Record<string, string>>): string[] => (query['jobs'] ?? '').split(',').filter(Boolean);
const axisOf = (query: Readonly<Record<string, string>>): OverlayAxis => AXES.find((axis) => axis === query['by']) ?? 'step';

export function ComparePage() {
  const comparison = useMemo(() => new Comparison(), []);
  useEffect(() => comparison.start(), [comparison]);
  useSignalEffect(() => {
    document.title = 'Compare · Elastane';
    const { route, query } = place.value;
    if (route.page === 'compare') comparison.show(idsOf(query), query['metric'] ?? 'loss');
  });
  const { query } = place.value;
  const ids = idsOf(query);
  return (
    <section class="compare" aria-labelledby="compare-title">
      <div class="page-head">
        <h1 id="compare-title">Compare</h1>
      </div>
      <Picks comparison={comparison} ids={ids} />
      <Tools metric={query['metric'] ?? 'loss'} axis={axisOf(query)} />
      {comparison.problem.value && <Fault problem={comparison.problem.value} retry={() => location.reload()} />}
      {ids.length === 0 ? <Empty title="Choose the jobs to lay over each other" /> : <Overlay comparison={comparison} axis={axisOf(query)} metric={query['metric'] ?? 'loss'} />}
      {ids.length > 1 && <Differences comparison={comparison} />}
    </section>
  );
}

function Picks({ comparison, ids }: { comparison: Comparison; ids: readonly string[] }) {
  const toggle = (id: string, on: boolean): void => setQuery({ jobs: (on ? [...ids, id] : ids.filter((one) => one !== id)).join(',') });
  const search = place.value.query['q'] ?? '';
  // Those chosen first, wherever in the list of all jobs they stand.
  const chosen = comparison.curves.value.map((curve) => curve.job);
  const others = comparison.offered.value.filter((job) => !chosen.some((one) => one.id === job.id) && matches(job, { search, states: [] }));
  return (
    <fieldset class="panel picks-panel">
      <legend class="hidden">Jobs</legend>
      <input
        type="search"
        class="search"
        placeholder="Search the newest jobs   /"
        aria-label="Search the newest jobs"
        value={search}
        onInput={(e) => setQuery({ q: e.currentTarget.value || null })}
      />
      <div class="picks">
        {[...chosen, ...others].map((job) => (
          <label key={job.id}>
            <input type="checkbox" checked={ids.includes(job.id)} onChange={(e) => toggle(job.id, e.currentTarget.checked)} />
            <span>
              {titleOf(job)} <small>{modelLabel(job.spec.model)}</small>
            </span>
            <StateBadge state={job.state} />
          </label>
        ))}
      </div>
    </fieldset>
  );
}

function Tools({ metric, axis }: { metric: string; axis: OverlayAxis }) {
  return (
    <div class="compare-tools">
      <label class="inline-field">
        metric
        <select value={metric} onChange={(e) => setQuery({ metric: e.currentTarget.value })}>
          {METRICS.map((name) => (
            <option key={name} value={name}>
              {nameOf(name)}
            </option>
          ))}
        </select>
      </label>
      <div class="segments" role="group" aria-label="Horizontal axis">
        {AXES.map((name) => (
          <button key={name} type="button" aria-pressed={axis === name} onClick={() => setQuery({ by: name })}>
            by {name}
          </button>
        ))}
      </div>
    </div>
  );
}

function formatOf(metric: string): (value: number) => string {
  if (metric.endsWith('_bytes')) return (v) => text(bytes(v));
  if (metric === 'tokens_per_s') return (v) => `${short(v)} tokens/s`;
  return metric.endsWith('_s') ? duration : figure;
}

const ACROSS: Record<OverlayAxis, (value: number) => string> = { step: (v) => String(v), tokens: short, time: duration };

function Overlay({ comparison, axis, metric }: { comparison: Comparison; axis: OverlayAxis; metric: string }) {
  const say = formatOf(metric);
  const content = useComputed<PlotContent>(() => {
    const curves = comparison.curves.value;
    const by = axisOf(place.value.query);
    const { xs, columns } = overlay(curves, by);
    const layers = curves.flatMap((curve, i): Layer[] => [
      // As on the page of a job: a spike of one step is a line, however many steps its point stands for.
      { key: `${curve.jobId} max`, ink: inkOf(i), width: 1, alpha: 0.4, fill: 0.15, bandToNext: true, spanGaps: true },
      { key: `${curve.jobId} min`, ink: inkOf(i), width: 1, alpha: 0.4, spanGaps: true },
      { key: curve.jobId, ink: inkOf(i), width: 1.75, spanGaps: true },
    ]);
    const read: PlotContent['read'] = (at) =>
      curves.map((curve, i) => ({ label: titleOf(curve.job), text: figureOr(valueAtPlace(curve, at, by), formatOf(place.peek().query['metric'] ?? 'loss')), ink: inkOf(i) }));
    return { layers, data: [xs, ...columns.flat()] as PlotContent['data'], read };
  });
  const view = useComputed(() => {
    const xs = content.value.data[0];
    return { from: 0, to: Math.max(1, Number(xs[xs.length - 1] ?? 1)) };
  });
  const none = useComputed(() => []);
  return (
    <Plot
      key={`${axis}-${metric}`}
      title={`${nameOf(metric)} by ${axis}`}
      group="compare"
      axis={metric === 'loss' || metric === 'grad_norm' || metric === 'lr' ? tick : say}
      across={ACROSS[axis]}
      content={content}
      markers={none}
      view={view}
      onZoom={() => undefined}
    />
  );
}

const figureOr = (value: number | null, say: (v: number) => string): string => (value === null ? '–' : say(value));

function Differences({ comparison }: { comparison: Comparison }) {
  const curves = comparison.curves.value;
  const rows = differences(curves.map((curve) => shortened(curve.spec)));
  return (
    <section class="panel" aria-labelledby="differences-title">
      <h2 id="differences-title">Where their specs differ</h2>
      {rows.length === 0 && <p class="hint">In nothing.</p>}
      {rows.length > 0 && (
        <div class="scroll-x" tabIndex={0} role="region" aria-label="Differences, field by field">
          <table class="plain">
            <thead>
              <tr>
                <th>Field</th>
                {curves.map((curve, i) => (
                  <th key={curve.jobId}>
                    <i class="key" style={{ '--key': `var(${inkOf(i)})` }} /> <a href={jobHash(curve.jobId)}>{titleOf(curve.job)}</a>
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr key={row.path}>
                  <td>
                    <code>{row.path}</code>
                  </td>
                  {row.values.map((value, i) => (
                    <td key={i}>{value}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

/** Who was in from when to when, and how fast each of those groups was. */

import { pointedStep } from '../../chart/cursor';
import { duration, secondsBetween, text, tokensRate, whole } from '../../domain/format';
import { generationsOf, lanesOf, type GenerationSpan } from '../../domain/generations';
import { Moment } from '../../part/moment';
import { Table, type Column } from '../../part/table';
import type { JobView } from '../../store/jobview';
import { isEnded } from '../../wire/job';

/** A cluster's worth of lanes is a wall; the first ones and the table say enough. */
const MOST_LANES = 16;

const COLUMNS: readonly Column[] = [{ num: 'Gen.' }, { num: 'Workers' }, { num: 'Steps' }, { num: 'Mean rate' }, 'From', 'To', { num: 'For' }];

export function GenerationsPanel({ view }: { view: JobView }) {
  void view.version.value;
  const spans = generationsOf(view.get('workers'), view.get('tokens_per_s'));
  if (!spans.length) return null;
  return (
    <section class="panel" aria-labelledby="generations-title">
      <h2 id="generations-title">Generations</h2>
      <Lanes view={view} spans={spans} />
      <Table label="Generations, newest first" columns={COLUMNS}>
        {[...spans].reverse().map((span, i) => (
          <tr key={span.generation} onMouseEnter={() => (pointedStep.value = span.from)} onMouseLeave={() => (pointedStep.value = null)}>
            <td class="num">{span.generation}</td>
            <td class="num">{span.workers}</td>
            <td class="num">
              {whole(span.from)}–{whole(span.to)}
            </td>
            <td class="num">{text(tokensRate(span.rate))}</td>
            <td>
              <Moment at={span.since} clock />
            </td>
            <td>{i === 0 && goesOn(view) ? 'now' : <Moment at={span.until} clock />}</td>
            <td class="num">{duration(secondsBetween(span.since, span.until))}</td>
          </tr>
        ))}
      </Table>
    </section>
  );
}

const goesOn = (view: JobView): boolean => !!view.job.value && !isEnded(view.job.value.state) && view.job.value.state !== 'paused';

/** One line per rank over the steps of the job; a cross where its worker was lost. */
function Lanes({ view, spans }: { view: JobView; spans: readonly GenerationSpan[] }) {
  const steps = Math.max(1, ...spans.map((span) => span.to));
  const share = (step: number): string => `${((100 * step) / steps).toFixed(2)}%`;
  const lanes = lanesOf(spans, view.events.value);
  const pids = new Map(view.workers.value.map((worker) => [worker.rank, worker]));
  return (
    <ol class="lanes" aria-label="Ranks over the steps of the job">
      {lanes.slice(0, MOST_LANES).map((lane) => (
        <li key={lane.rank}>
          <span title={whereOf(pids.get(lane.rank))}>rank {lane.rank}</span>
          <div role="img" aria-label={lane.bars.map((bar) => `generation ${bar.generation}, steps ${bar.from} to ${bar.to}`).join('; ')}>
            {lane.bars.map((bar) => (
              <i
                key={bar.generation}
                class={`gen-${bar.generation % 2}`}
                style={{ left: share(bar.from - 1), width: share(bar.to - bar.from + 1) }}
                title={`generation ${bar.generation}, steps ${whole(bar.from)} to ${whole(bar.to)}`}
              />
            ))}
            {lane.losses.map((loss) => (
              <b key={loss.step} style={{ left: share(loss.step) }} title={loss.what} />
            ))}
          </div>
        </li>
      ))}
      {lanes.length > MOST_LANES && <li class="hint">and {lanes.length - MOST_LANES} more ranks</li>}
    </ol>
  );
}

const whereOf = (worker: { node: string | null; device: string | null; pid: number | null } | undefined): string =>
  worker ? `now ${worker.device ?? 'a device'} of ${worker.node ?? 'a node'}, process ${worker.pid ?? '–'}` : 'nobody now';

/** What happened, newest first. A line under the pointer is shown on every chart. */

import { pointedStep } from '../../chart/cursor';
import { kindOf, longTexts, nameOf, sentence, toneOf } from '../../domain/marker';
import { jobHash } from '../../domain/route';
import { Moment } from '../../part/moment';
import type { JobView } from '../../store/jobview';
import { place, setQuery } from '../../store/place';
import type { JobEvent } from '../../wire/job';

export function Timeline({ view, newest }: { view: JobView; newest?: number }) {
  const kind = place.value.query['kind'] ?? '';
  const events = view.events.value;
  const kinds = [...new Set(events.map((event) => event.kind))].sort();
  const wanted = events.filter((event) => kind === '' || event.kind === kind).reverse();
  const shown = newest === undefined ? wanted : wanted.slice(0, newest);
  return (
    <section class="panel" aria-labelledby="timeline-title">
      <div class="panel-head">
        <h2 id="timeline-title">Timeline</h2>
        <select aria-label="Kind of event" value={kind} onChange={(e) => setQuery({ kind: e.currentTarget.value || null })}>
          <option value="">all kinds</option>
          {kinds.map((k) => (
            <option key={k} value={k}>
              {nameOf(k)}
            </option>
          ))}
        </select>
      </div>
      {events.length === 0 && <p class="hint">Nothing has happened yet.</p>}
      <ol class="timeline">
        {shown.map((event) => (
          <Line key={event.id} event={event} />
        ))}
      </ol>
      {shown.length < wanted.length && (
        <p class="hint">
          {shown.length} of {wanted.length} · <a href={jobHash(view.id, { ...place.value.query, tab: 'timeline' })}>show all</a>
        </p>
      )}
    </section>
  );
}

function Line({ event }: { event: JobEvent }) {
  const kind = kindOf(event);
  const rest = sentence(event).slice(nameOf(kind).length);
  return (
    <li
      class={`tone-${toneOf(kind)}`}
      data-kind={event.kind}
      onMouseEnter={() => (pointedStep.value = event.step)}
      onMouseLeave={() => (pointedStep.value = null)}
    >
      <i aria-hidden="true" />
      <Moment at={event.at} clock />
      <span class="num step">{event.step === null ? '' : `step ${event.step}`}</span>
      <span>
        <b>{nameOf(kind)}</b>
        {rest}
        {longTexts(event).map(([name, words]) => (
          <details key={name}>
            <summary>{nameOf(name)}</summary>
            <pre>{words}</pre>
          </details>
        ))}
      </span>
    </li>
  );
}

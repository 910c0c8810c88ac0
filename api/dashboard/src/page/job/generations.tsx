/** Who many were at work from when to when, and how fast each of those groups was. */

import { duration, secondsBetween, text, tokensRate, whole } from '../../domain/format';
import { generationsOf } from '../../domain/generations';
import { Moment } from '../../part/moment';
import { pointedStep } from '../../chart/cursor';
import type { JobView } from '../../store/jobview';

export function GenerationsPanel({ view }: { view: JobView }) {
  void view.version.value;
  const spans = generationsOf(view.get('workers'), view.get('tokens_per_s'));
  if (!spans.length) return null;
  const steps = Math.max(1, ...spans.map((span) => span.to));
  return (
    <section class="panel" aria-labelledby="generations-title">
      <h2 id="generations-title">Generations</h2>
      <div class="generation-strip" aria-hidden="true">
        {spans.map((span) => (
          <i key={span.generation} style={{ width: `${((100 * (span.to - span.from + 1)) / steps).toFixed(2)}%` }} title={`generation ${span.generation}`}>
            {span.workers}
          </i>
        ))}
      </div>
      <div class="scroll-x" tabIndex={0} role="region" aria-label="Generations, newest first">
        <table class="plain">
          <thead>
            <tr>
              <th class="num">Gen.</th>
              <th class="num">Workers</th>
              <th class="num">Steps</th>
              <th class="num">Mean rate</th>
              <th>Since</th>
              <th class="num">For</th>
            </tr>
          </thead>
          <tbody>
            {[...spans].reverse().map((span) => (
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
                <td class="num">{duration(secondsBetween(span.since, span.until))}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

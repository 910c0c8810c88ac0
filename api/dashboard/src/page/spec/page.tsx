/** Write a spec, see at every key what it would need, submit it. "New job" and "Plan" are this page with another first question. */

import { useSignal, useSignalEffect } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import { parseSpec } from '../../domain/draft';
import { jobHash } from '../../domain/route';
import { Permit } from '../../part/permit';
import { say } from '../../store/notice';
import { go, place, setQuery } from '../../store/place';
import { Planner } from '../../store/planner';
import { asProblem, type Problem } from '../../wire/problem';
import { newKey, submitJob } from '../../wire/rest';
import { SpecForm } from './form';
import { PlanView } from './plan';
import { SpecText } from './text';

/** The spec stands in the address, and a link to another one that is opened on this page is followed. */
function useAddress(planner: Planner): void {
  const written = (): string => JSON.stringify(planner.spec.peek());
  useSignalEffect(() => {
    void planner.spec.value;
    const { page } = place.peek().route;
    if (page === 'plan' || page === 'submit') queueMicrotask(() => setQuery({ spec: written(), from: null, start: null }));
  });
  useSignalEffect(() => {
    const linked = place.value.query['spec'];
    const spec = linked && linked !== written() ? parseSpec(linked) : null;
    if (spec) planner.change(spec);
  });
}

export function SpecPage({ planning }: { planning: boolean }) {
  const { query } = place.value;
  const planner = useMemo(() => new Planner(parseSpec(query['spec'] ?? '')), []);
  const asText = query['as'] === 'json';
  const title = planning ? 'Plan' : 'New job';
  useEffect(() => {
    document.title = `${title} · Elastane`;
    void planner.load(query['spec'] ? null : (query['from'] ?? null), query['start'] ?? null);
    return () => planner.stop();
  }, [planner]);
  useAddress(planner);
  return (
    <section class="spec-page" aria-labelledby="spec-title">
      <div class="page-head">
        <h1 id="spec-title">{title}</h1>
        <p class="hint">{planning ? 'What a job would need, before it runs.' : 'Checked and planned while you type; nothing runs before you submit.'}</p>
      </div>
      <div class="spec-columns">
        <div class="panel spec-editor">
          <div class="panel-head">
            <div class="segments" role="group" aria-label="Write as">
              <button type="button" aria-pressed={!asText} onClick={() => setQuery({ as: null })}>
                form
              </button>
              <button type="button" aria-pressed={asText} onClick={() => setQuery({ as: 'json' })}>
                JSON
              </button>
            </div>
          </div>
          {asText ? <SpecText planner={planner} /> : <SpecForm planner={planner} />}
          <SubmitRow planner={planner} />
        </div>
        <PlanView planner={planner} />
      </div>
    </section>
  );
}

function SubmitRow({ planner }: { planner: Planner }) {
  const busy = useSignal(false);
  // One key for one wish: a second click or a repeat after a lost answer gives the same job.
  const key = useMemo(newKey, [planner.spec.value]);
  const submit = async (): Promise<void> => {
    busy.value = true;
    try {
      const job = await submitJob(planner.spec.value, key);
      say('Job submitted');
      go(jobHash(job.id));
    } catch (error) {
      planner.problem.value = asProblem(error);
    } finally {
      busy.value = false;
    }
  };
  const problem = planner.problem.value;
  return (
    <div class="submit-row">
      <Permit>
        <button type="button" class="button primary" disabled={busy.value || (problem !== null && problem.status === 422)} onClick={() => void submit()}>
          {busy.value ? 'Submitting…' : 'Submit job'}
        </button>
        <span class="hint" role="status">
          {problem ? verdict(problem) : planner.asking.value ? 'checking…' : 'the service accepts this'}
        </span>
      </Permit>
    </div>
  );
}

function verdict(problem: Problem): string {
  if (problem.status !== 422) return problem.title;
  const many = problem.errors.length || 1;
  return `${many} thing${many > 1 ? 's' : ''} to mend`;
}

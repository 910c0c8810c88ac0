/** The spec as the service understood it, defaults and all. */

import { hashOf } from '../../domain/route';
import { copy } from '../../part/copy';
import { denied } from '../../store/session';
import type { Job } from '../../wire/job';

export function SpecPanel({ job }: { job: Job }) {
  const json = JSON.stringify(job.spec, null, 2);
  return (
    <section class="panel" aria-labelledby="spec-title">
      <div class="panel-head">
        <h2 id="spec-title">Spec</h2>
        <span class="actions">
          <button type="button" class="button" onClick={() => copy(json, 'Spec')}>
            Copy
          </button>
          {denied('submit') === null && (
            <a class="button" href={hashOf({ page: 'submit' }, { from: job.id })}>
              Run again with changes
            </a>
          )}
        </span>
      </div>
      <pre class="spec" tabIndex={0} aria-label="Spec as JSON">
        <code>{json}</code>
      </pre>
    </section>
  );
}

/** The list in one line: how many run and wait, and what they make together. */

import { tokensRate } from '../../domain/format';
import { groupOf } from '../../domain/jobfilter';
import { Amount } from '../../part/quantity';
import type { JobList } from '../../store/joblist';

export function Summary({ list }: { list: JobList }) {
  const jobs = list.all.value;
  const active = jobs.filter((job) => groupOf(job.state) === 'active');
  const waiting = jobs.filter((job) => groupOf(job.state) === 'waiting').length;
  const workers = active.reduce((sum, job) => sum + job.workers.actual, 0);
  const rate = active.reduce((sum, job) => sum + (job.state === 'running' ? (job.throughput_tokens_per_s ?? 0) : 0), 0);
  if (!jobs.length) return null;
  return (
    <dl class="summary">
      <div>
        <dt>active</dt>
        <dd>{active.length}</dd>
      </div>
      <div>
        <dt>waiting</dt>
        <dd>{waiting}</dd>
      </div>
      <div>
        <dt>workers</dt>
        <dd>{workers}</dd>
      </div>
      <div>
        <dt>together</dt>
        <dd>
          <Amount of={tokensRate(rate)} />
        </dd>
      </div>
      {list.hasMore.value && <small class="hint">of the {jobs.length} newest</small>}
    </dl>
  );
}

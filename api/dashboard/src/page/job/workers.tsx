/** The members of the present generation. */

import { StateBadge } from '../../part/badge';
import type { JobView } from '../../store/jobview';

export function WorkersPanel({ view }: { view: JobView }) {
  const workers = [...view.workers.value].sort((a, b) => a.rank - b.rank);
  const job = view.job.value;
  return (
    <section class="panel" aria-labelledby="workers-title">
      <h2 id="workers-title">
        Workers <small>generation {job?.generation ?? '–'}</small>
      </h2>
      {workers.length === 0 && <p class="hint">Nobody is at work.</p>}
      {workers.length > 0 && (
        <div class="scroll-x" tabIndex={0} role="region" aria-label="Workers, by rank">
          <table class="plain">
            <thead>
              <tr>
                <th class="num">Rank</th>
                <th>State</th>
                <th>Node</th>
                <th>Device</th>
                <th class="num">Process</th>
                <th>Copy of its shard</th>
              </tr>
            </thead>
            <tbody>
              {workers.map((worker) => (
                <tr key={worker.rank}>
                  <td class="num">{worker.rank}</td>
                  <td>
                    <StateBadge state={worker.state} />
                  </td>
                  <td>{worker.node ?? '–'}</td>
                  <td>{worker.device ?? '–'}</td>
                  <td class="num">{worker.pid ?? '–'}</td>
                  <td>{worker.buddy == null ? '–' : `rank ${worker.buddy}`}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

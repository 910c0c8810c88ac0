/** The members of the present generation. */

import { StateBadge } from '../../part/badge';
import { Table, type Column } from '../../part/table';
import type { JobView } from '../../store/jobview';

const COLUMNS: readonly Column[] = [{ num: 'Rank' }, 'State', 'Node', 'Device', { num: 'Process' }, 'Copy of its shard'];

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
        <Table label="Workers, by rank" columns={COLUMNS}>
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
        </Table>
      )}
    </section>
  );
}

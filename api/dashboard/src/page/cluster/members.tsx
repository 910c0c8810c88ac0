/** Who works where, and whose memory keeps the copy of each shard. */

import { keptBy, safety } from '../../domain/buddies';
import { jobHash } from '../../domain/route';
import { StateBadge } from '../../part/badge';
import { Table, type Column } from '../../part/table';
import type { SlotUse } from '../../wire/cluster';
import { titleOf } from '../../wire/job';

/** Of a larger job the first ones and the sentence say enough. */
const MOST_ROWS = 64;

export function Members({ uses }: { uses: readonly SlotUse[] }) {
  const working = uses.filter((use) => use.members.length);
  return (
    <section class="panel" aria-labelledby="members-title">
      <h2 id="members-title">Workers and buddies</h2>
      {working.length === 0 && <p class="hint">Nobody is at work.</p>}
      {working.map((use) => (
        <Group key={use.job_id} use={use} />
      ))}
    </section>
  );
}

const COLUMNS: readonly Column[] = [{ num: 'Rank' }, 'Node', 'Device', 'State', 'Copy of its shard'];

function Group({ use }: { use: SlotUse }) {
  const kept = keptBy(use.members);
  const name = titleOf({ id: use.job_id, name: use.name });
  return (
    <section class="members" aria-label={`Workers of ${name}`} data-members={use.job_id}>
      <h3>
        <a href={jobHash(use.job_id)}>{name}</a>
      </h3>
      <p class="hint">{safety(kept)}</p>
      <Table label={`Workers of ${name}, by rank`} columns={COLUMNS}>
        {kept.slice(0, MOST_ROWS).map((one) => (
          <tr key={one.rank}>
            <td class="num">{one.rank}</td>
            <td>{one.node ?? '–'}</td>
            <td>{one.device ?? '–'}</td>
            <td>
              <StateBadge state={one.state} />
            </td>
            <td>{one.keeper ? `rank ${one.keeper.rank}, ${one.apart ? `on ${one.keeper.node ?? 'another node'}` : 'on the same node'}` : '–'}</td>
          </tr>
        ))}
      </Table>
      {kept.length > MOST_ROWS && <p class="hint">and {kept.length - MOST_ROWS} more ranks</p>}
    </section>
  );
}

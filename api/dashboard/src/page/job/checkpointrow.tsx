/** One checkpoint and its actions. */

import { bytes, duration, text, whole } from '../../domain/format';
import { hashOf } from '../../domain/route';
import { Moment } from '../../part/moment';
import type { CheckpointList } from '../../store/checkpoints';
import { denied } from '../../store/session';
import type { Checkpoint, Verified } from '../../wire/checkpoint';
import type { Asked } from './checkpointdialog';

export interface RowProps {
  one: Checkpoint;
  list: CheckpointList;
  /** The job would go on from this one, so it cannot be deleted. */
  needed: boolean;
  ask(what: Asked['what']): void;
}

export function CheckpointRow({ one, list, needed, ask }: RowProps) {
  const busy = list.busy.value.has(one.step);
  return (
    <tr data-checkpoint={one.step} aria-busy={busy}>
      <td class="num">
        {one.pinned && <span class="pin" role="img" aria-label="pinned" title="Pinned: retention leaves it alone" />} {whole(one.step)}
      </td>
      <td class="num">{text(bytes(one.size_bytes))}</td>
      <td class="num">{one.files}</td>
      <td class="num">{duration(one.duration_s)}</td>
      <td title={one.uri}>
        <Moment at={one.at} />
      </td>
      <td>
        <Finding found={list.verified.value.get(one.step)} busy={busy} />
      </td>
      <td>
        <span class="actions row-actions">
          <button type="button" class="button" onClick={() => ask('export')}>
            Export…
          </button>
          {denied('submit') === null && <Changes one={one} list={list} needed={needed} ask={ask} />}
        </span>
      </td>
    </tr>
  );
}

/** What asks for more than reading. */
function Changes({ one, list, needed, ask }: RowProps) {
  const busy = list.busy.value.has(one.step);
  const start = hashOf({ page: 'submit' }, { from: list.jobId, start: `${list.jobId}@${one.step}` });
  return (
    <>
      <button type="button" class="button" disabled={busy} onClick={() => void list.verify(one.step)}>
        Verify
      </button>
      <button type="button" class="button" disabled={busy} aria-pressed={one.pinned} onClick={() => void list.pin(one.step, !one.pinned)}>
        {one.pinned ? 'Unpin' : 'Pin'}
      </button>
      <a class="button" href={start}>
        Start from…
      </a>
      <button
        type="button"
        class="button danger-text"
        disabled={busy || needed}
        title={needed ? 'The job would go on from this one' : undefined}
        onClick={() => ask('delete')}
      >
        Delete…
      </button>
    </>
  );
}

function Finding({ found, busy }: { found: Verified | undefined; busy: boolean }) {
  if (busy) return <span class="hint">asking…</span>;
  if (!found) return <span class="hint">–</span>;
  if (found.whole) return <span class="good-text">every byte is right</span>;
  return (
    <span class="bad-text" title={found.problems.join('\n')}>
      damaged: {found.problems.join('; ')}
    </span>
  );
}

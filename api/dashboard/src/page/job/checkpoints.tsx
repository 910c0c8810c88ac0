/** Whole checkpoints, newest first, one now, and what can be done with one. */

import { useSignal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import { Permit } from '../../part/permit';
import { Table, type Column } from '../../part/table';
import type { JobView } from '../../store/jobview';
import { CheckpointList } from '../../store/checkpoints';
import { isEnded } from '../../wire/job';
import { CheckpointDialog, type Asked } from './checkpointdialog';
import { CheckpointRow } from './checkpointrow';

const COLUMNS: readonly Column[] = [{ num: 'Step' }, { num: 'Size' }, { num: 'Files' }, { num: 'Took' }, 'Saved', 'Checked', { unseen: 'Actions' }];

export function CheckpointsPanel({ view }: { view: JobView }) {
  const list = useMemo(() => new CheckpointList(view.id), [view]);
  const asked = useSignal<Asked | null>(null);
  const told = view.events.value.filter((event) => /^checkpoint_(saved|deleted)$/.test(event.kind)).length;
  useEffect(() => void list.load(), [list, told]);
  const items = list.items.value;
  const job = view.job.value;
  const kept = job !== null && !isEnded(job.state) ? items?.[0]?.step : undefined;
  return (
    <section class="panel" aria-labelledby="checkpoints-title">
      <div class="panel-head">
        <h2 id="checkpoints-title">Checkpoints</h2>
        <Permit>
          <button type="button" class="button" disabled={job?.state !== 'running'} onClick={() => list.take()}>
            Take one now
          </button>
        </Permit>
      </div>
      {items?.length === 0 && <p class="hint">None is kept yet.</p>}
      {items && items.length > 0 && (
        <Table label="Checkpoints, newest first" columns={COLUMNS} class="checkpoints">
          {items.map((one) => (
            <CheckpointRow key={one.step} one={one} list={list} needed={one.step === kept} ask={(what) => (asked.value = { what, one })} />
          ))}
        </Table>
      )}
      {asked.value && <CheckpointDialog asked={asked.value} list={list} onClose={() => (asked.value = null)} />}
    </section>
  );
}

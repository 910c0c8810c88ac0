/** Whole checkpoints, newest first, one now, and what can be done with one. */

import { useSignal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import { Permit } from '../../part/permit';
import type { JobView } from '../../store/jobview';
import { CheckpointList } from '../../store/checkpoints';
import { isEnded } from '../../wire/job';
import { CheckpointDialog, type Asked } from './checkpointdialog';
import { CheckpointRow } from './checkpointrow';

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
        <div class="scroll-x" tabIndex={0} role="region" aria-label="Checkpoints, newest first">
          <table class="plain checkpoints">
            <thead>
              <tr>
                <th class="num">Step</th>
                <th class="num">Size</th>
                <th class="num">Files</th>
                <th class="num">Took</th>
                <th>Saved</th>
                <th>Checked</th>
                <th>
                  <span class="hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {items.map((one) => (
                <CheckpointRow key={one.step} one={one} list={list} needed={one.step === kept} ask={(what) => (asked.value = { what, one })} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {asked.value && <CheckpointDialog asked={asked.value} list={list} onClose={() => (asked.value = null)} />}
    </section>
  );
}

/** Whole checkpoints, newest first, and one now. */

import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { bytes, duration, text, whole } from '../../domain/format';
import { Moment } from '../../part/moment';
import type { JobView } from '../../store/jobview';
import { say, sayProblem } from '../../store/notice';
import type { Checkpoint } from '../../wire/logs';
import { getCheckpoints, takeCheckpoint } from '../../wire/rest';

export function CheckpointsPanel({ view }: { view: JobView }) {
  const items = useSignal<readonly Checkpoint[] | null>(null);
  const saved = view.events.value.filter((event) => event.kind === 'checkpoint_saved').length;
  useEffect(() => {
    getCheckpoints(view.id).then(
      (answer) => (items.value = answer.items),
      (error: unknown) => sayProblem('The checkpoints could not be read', error),
    );
  }, [view, saved]);
  const take = (): void => {
    takeCheckpoint(view.id).then(
      () => say('A checkpoint is taken as soon as the step allows'),
      (error: unknown) => sayProblem('No checkpoint was asked for', error),
    );
  };
  return (
    <section class="panel" aria-labelledby="checkpoints-title">
      <div class="panel-head">
        <h2 id="checkpoints-title">Checkpoints</h2>
        <button type="button" class="button" disabled={view.job.value?.state !== 'running'} onClick={take}>
          Take one now
        </button>
      </div>
      {items.value?.length === 0 && <p class="hint">None is kept yet.</p>}
      {items.value && items.value.length > 0 && (
        <div class="scroll-x" tabIndex={0} role="region" aria-label="Checkpoints, newest first">
          <table class="plain">
            <thead>
              <tr>
                <th class="num">Step</th>
                <th class="num">Size</th>
                <th class="num">Files</th>
                <th class="num">Took</th>
                <th>Saved</th>
                <th>Where</th>
              </tr>
            </thead>
            <tbody>
              {items.value.map((one) => (
                <tr key={one.step}>
                  <td class="num">{whole(one.step)}</td>
                  <td class="num">{text(bytes(one.size_bytes))}</td>
                  <td class="num">{one.files}</td>
                  <td class="num">{duration(one.duration_s)}</td>
                  <td>
                    <Moment at={one.at} />
                  </td>
                  <td>
                    <code>{one.uri}</code>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

/** Another number of workers: chosen by a slider, its effect said before it is asked for. */

import { useSignal } from '@preact/signals';
import { effectOfScale } from '../../domain/effect';
import { Dialog } from '../../part/dialog';
import { EffectLines } from '../../part/effectlines';
import type { JobView } from '../../store/jobview';
import { say, sayProblem } from '../../store/notice';
import { titleOf, type Job } from '../../wire/job';
import { scaleJob } from '../../wire/rest';
import { useKnown } from './effect';

export function ScaleDialog({ job, view, onClose }: { job: Job; view: JobView; onClose(): void }) {
  const known = useKnown(job.id);
  const { actual, desired } = job.workers;
  const [min, max] = reach(job);
  const wanted = useSignal(Math.min(max, Math.max(min, desired || actual || min)));
  const busy = useSignal(false);
  const run = async (): Promise<void> => {
    busy.value = true;
    try {
      await scaleJob(job.id, wanted.value);
      say(`Scale to ${wanted.value} accepted: it happens at the next step boundary`);
    } catch (error) {
      sayProblem('Scale was refused', error);
    }
    onClose();
  };
  return (
    <Dialog title={`Scale ${titleOf(job)}`} confirm={`Scale to ${wanted.value}`} busy={busy.value} disabled={wanted.value === desired && wanted.value === job.workers.max} onConfirm={() => void run()} onClose={onClose}>
      <label class="slider">
        <span>
          Workers, {min} to {max}
        </span>
        <input type="range" min={min} max={max} step={1} value={wanted.value} onInput={(e) => (wanted.value = Number(e.currentTarget.value))} />
        <output>{wanted.value}</output>
      </label>
      <EffectLines lines={effectOfScale(job, wanted.value, view.planned(actual), view.planned(wanted.value), known.value)} />
      {min === max && <p class="hint">This job has a fixed size of {min}. Submit it with bounds, as in workers: {'{min: 1, max: 4}'}, to scale it.</p>}
    </Dialog>
  );
}

/** The bounds of the spec, wider where the job was scaled beyond them since. */
function reach(job: Job): [number, number] {
  const asked = job.spec.workers as { min?: number; max?: number } | undefined;
  return [Math.min(job.workers.min, asked?.min ?? 1), Math.max(job.workers.max, asked?.max ?? 1)];
}

/** The checkpoints of one job and what was found out about them here. */

import { signal } from '@preact/signals';
import type { Checkpoint, Verified } from '../wire/checkpoint';
import { deleteCheckpoint, getCheckpoints, pinCheckpoint, takeCheckpoint, verifyCheckpoint } from '../wire/rest';
import { say, sayProblem } from './notice';

export class CheckpointList {
  readonly items = signal<readonly Checkpoint[] | null>(null);
  readonly verified = signal<ReadonlyMap<number, Verified>>(new Map());
  /** Steps that the service is asked about now. */
  readonly busy = signal<ReadonlySet<number>>(new Set());

  constructor(readonly jobId: string) {}

  async load(): Promise<void> {
    try {
      this.items.value = (await getCheckpoints(this.jobId)).items;
    } catch (error) {
      sayProblem('The checkpoints could not be read', error);
    }
  }

  take(): void {
    takeCheckpoint(this.jobId).then(
      () => say('A checkpoint is taken as soon as the step allows'),
      (error: unknown) => sayProblem('No checkpoint was asked for', error),
    );
  }

  verify(step: number): Promise<void> {
    return this.at(step, 'was not verified', async () => {
      const found = await verifyCheckpoint(this.jobId, step);
      this.verified.value = new Map(this.verified.value).set(step, found);
    });
  }

  pin(step: number, pinned: boolean): Promise<void> {
    return this.at(step, `was not ${pinned ? 'pinned' : 'unpinned'}`, async () => {
      const changed = await pinCheckpoint(this.jobId, step, pinned);
      this.items.value = this.items.value?.map((one) => (one.step === step ? changed : one)) ?? null;
    });
  }

  remove(step: number): Promise<void> {
    return this.at(step, 'was not deleted', async () => {
      await deleteCheckpoint(this.jobId, step);
      this.items.value = this.items.value?.filter((one) => one.step !== step) ?? null;
      say(`The checkpoint of step ${step} is deleted`);
    });
  }

  private async at(step: number, failed: string, act: () => Promise<void>): Promise<void> {
    this.busy.value = new Set(this.busy.value).add(step);
    try {
      await act();
    } catch (error) {
      sayProblem(`The checkpoint of step ${step} ${failed}`, error);
    } finally {
      this.busy.value = new Set([...this.busy.value].filter((one) => one !== step));
    }
  }
}

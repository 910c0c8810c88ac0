/** The spec being written and what the service says to it, asked a moment after the last key. */

import { signal } from '@preact/signals';
import { again } from '../domain/draft';
import type { Schemas } from '../domain/schema';
import type { JobSpec } from '../wire/job';
import type { DryRun } from '../wire/plan';
import { asProblem, type FieldProblem, type Problem } from '../wire/problem';
import { dryRun, getJob, getOpenApi, makePlan } from '../wire/rest';
import { denied, known } from './session';

const QUIET_MS = 300;
/** A service that does not answer is asked again. */
const AGAIN_MS = 4_000;

export const FIRST_SPEC: JobSpec = {
  model: 'gpt-tiny',
  stage: 2,
  precision: 'fp32',
  workers: { min: 1, max: 3 },
  training: { steps: 200, batch_size: 12, micro_batch_size: 2, seq_len: 128 },
};

export class Planner {
  readonly spec = signal<JobSpec>(FIRST_SPEC);
  readonly schemas = signal<Schemas | null>(null);
  readonly answer = signal<DryRun | null>(null);
  readonly problem = signal<Problem | null>(null);
  /** From the start: nothing is accepted before it was asked about. */
  readonly asking = signal(true);
  private timer: ReturnType<typeof setTimeout> | undefined;
  private ticket = 0;

  constructor(start: JobSpec | null) {
    if (start) this.spec.value = start;
  }

  /** `start`: JOB@STEP, the checkpoint that the new job begins with. */
  async load(fromJob: string | null, start: string | null): Promise<void> {
    try {
      if (fromJob) this.spec.value = again((await getJob(fromJob)).spec, start);
    } catch (error) {
      this.problem.value = asProblem(error);
    }
    await this.ask();
  }

  change(spec: JobSpec): void {
    this.spec.value = spec;
    this.askIn(QUIET_MS);
  }

  stop(): void {
    clearTimeout(this.timer);
    this.ticket += 1;
  }

  /** What is wrong with a field, by its path. */
  faultOf(path: string): FieldProblem | undefined {
    return this.problem.value?.errors.find((e) => e.field === path || e.field.startsWith(`${path}.`));
  }

  /** Who may not submit is not asked whether the service would accept it, and sees the plan all the same. */
  private async answered(): Promise<DryRun> {
    await known;
    const spec = this.spec.value;
    return denied('submit') === null ? dryRun(spec) : { dry_run: true, plan: await makePlan(spec), report: {} };
  }

  private askIn(ms: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.ask(), ms);
  }

  private async ask(): Promise<void> {
    const ticket = ++this.ticket;
    this.asking.value = true;
    try {
      this.schemas.value ??= (await getOpenApi()).components.schemas;
      const answer = await this.answered();
      if (ticket !== this.ticket) return;
      this.answer.value = answer;
      this.problem.value = null;
    } catch (error) {
      if (ticket !== this.ticket) return;
      this.problem.value = asProblem(error);
      if (this.problem.value.unreachable) this.askIn(AGAIN_MS);
    } finally {
      if (ticket === this.ticket) this.asking.value = false;
    }
  }
}

/** What the planner says a rank of this job holds, for every number of workers the job has had. */

import { signal } from '@preact/signals';
import type { JobSpec } from '../wire/job';
import type { PlanChoice } from '../wire/plan';
import { offloadLabel } from '../domain/tiers';
import { makePlan } from '../wire/rest';

export class Prediction {
  private readonly found = signal<ReadonlyMap<number, PlanChoice>>(new Map());
  /** Bytes that a worker has; null where nobody says. */
  readonly capacity = signal<number | null>(null);
  private readonly asked = new Set<number>();

  of(workers: number): PlanChoice | undefined {
    return this.found.value.get(workers);
  }

  /** One plan per size, once. A model that cannot be planned has no prediction, and that is no fault. */
  want(spec: JobSpec, stage: number | string | null, sizes: Iterable<number>): void {
    for (const workers of sizes) {
      if (workers < 1 || this.asked.has(workers)) continue;
      this.asked.add(workers);
      void this.ask({ ...spec, workers: { min: workers, max: workers } }, stage, workers);
    }
  }

  private async ask(spec: JobSpec, stage: number | string | null, workers: number): Promise<void> {
    const plan = await makePlan(spec).catch(() => null);
    this.capacity.value = plan?.capacity_bytes ?? this.capacity.value;
    const offload = offloadLabel(spec);
    const choice = plan?.choices.find((one) => one.workers === workers && one.stage === Number(stage) && one.offload === offload);
    if (choice) this.found.value = new Map(this.found.value).set(workers, choice);
  }
}

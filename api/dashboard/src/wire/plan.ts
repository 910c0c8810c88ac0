/** A plan as the API says it; all bytes are of one rank. */

export interface PlanChoice {
  stage: number;
  offload: string;
  workers: number;
  /** kind -> tier -> bytes */
  bytes_by_kind: Record<string, Record<string, number>>;
  states_bytes: number;
  total_bytes: number;
  elements_per_step: number;
  /** null: the memory of a worker is not known */
  fits: boolean | null;
  note: string;
}

export interface Plan {
  model: string;
  numel: number;
  unit_numels: Record<string, number>;
  micro_batches: number;
  /** Memory of a worker's device. */
  capacity_bytes: number | null;
  choices: PlanChoice[];
  recommendation: { stage: number; offload: string; workers: number; why: string };
}

/** The spec is legal; nothing was submitted. `plan` is null where the model's size is known only where it is built. */
export interface DryRun {
  dry_run: true;
  plan: Plan | null;
  report: Record<string, string>;
}

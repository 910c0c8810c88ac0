/** A job as the API says it; see section 3 of the contract. */

export const JOB_STATES = [
  'queued',
  'starting',
  'running',
  'resizing',
  'recovering',
  'pausing',
  'paused',
  'cancelling',
  'succeeded',
  'failed',
  'cancelled',
] as const;

export type JobState = (typeof JOB_STATES)[number];

export interface JobWorkers {
  desired: number;
  actual: number;
  min: number;
  max: number;
}

export interface RankMemory {
  rank: number;
  params_bytes: number | null;
  grads_bytes: number | null;
  optimizer_bytes: number | null;
  activations_peak_bytes: number | null;
  gathered_peak_bytes: number | null;
  process_bytes: number | null;
  predicted_bytes: number | null;
  /** Of the kinds above, what is offloaded. */
  host_bytes?: number | null;
  nvme_bytes?: number | null;
}

export interface JobSpec {
  name?: string | null;
  model: unknown;
  stage?: number | string;
  engine?: string;
  workers?: unknown;
  priority?: number;
  training?: { steps?: number; batch_size?: number; micro_batch_size?: number; seq_len?: number };
  [field: string]: unknown;
}

export interface Job {
  id: string;
  name: string | null;
  state: JobState;
  reason: string | null;
  spec: JobSpec;
  stage: number | string | null;
  step: number;
  steps: number;
  workers: JobWorkers;
  generation: number | null;
  attempt: number | null;
  throughput_tokens_per_s: number | null;
  loss: number | string | null;
  memory: { per_rank: RankMemory[] } | null;
  priority: number;
  created_at: string;
  started_at: string | null;
  ended_at: string | null;
  heartbeat_at: string | null;
}

export interface JobEvent {
  id: string | number;
  kind: string;
  at: string;
  step: number | null;
  generation: number | null;
  /** A sentence of the service; controllers' events may have none. */
  message?: string;
  payload: Record<string, unknown>;
}

export interface Worker {
  rank: number;
  pid: number | null;
  node: string | null;
  device: string | null;
  state: string;
  /** The rank whose worker keeps a copy of its shard in memory. */
  buddy?: number | null;
}

/** Why a job has the workers it has. */
export interface Explanation {
  state: JobState;
  reason: string;
  /** With numbers, to be read in order. */
  sentences: string[];
  slot_kind: string;
  needs_slots: number;
  slots: number;
  slots_free: number;
  /** Who holds slots or comes first. */
  ahead: { job_id: string; name: string | null; priority: number; slots: number }[];
}

export interface Page<T> {
  items: T[];
  next_cursor: string | null;
}

const ENDED: ReadonlySet<JobState> = new Set(['succeeded', 'failed', 'cancelled']);
const ACTIVE: ReadonlySet<JobState> = new Set(['starting', 'running', 'resizing', 'recovering', 'pausing', 'cancelling']);

export const isEnded = (state: JobState): boolean => ENDED.has(state);
/** A controller holds the job: heartbeats are expected. */
export const isActive = (state: JobState): boolean => ACTIVE.has(state);

/** What a person would call the job: its name, else the tail of its id, which differs between neighbours. */
export const titleOf = (job: Pick<Job, 'id' | 'name'>): string => job.name || `job ${job.id.slice(-8)}`;

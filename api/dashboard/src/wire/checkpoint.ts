/** A checkpoint as the API says it. */

export interface Checkpoint {
  step: number;
  uri: string;
  size_bytes: number;
  files: number;
  duration_s: number;
  attempt: number;
  at: string;
  /** Retention leaves it alone. */
  pinned: boolean;
}

/** Every byte was read; `problems` name the files that are not what was written. */
export interface Verified {
  step: number;
  whole: boolean;
  problems: string[];
}

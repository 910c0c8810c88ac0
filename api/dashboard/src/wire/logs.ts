export interface LogLine {
  id: number;
  /** null: the controller's */
  rank: number | null;
  at: string;
  level: 'debug' | 'info' | 'warning' | 'error';
  text: string;
  attempt: number;
}

export interface Checkpoint {
  step: number;
  uri: string;
  size_bytes: number;
  files: number;
  duration_s: number;
  attempt: number;
  at: string;
}

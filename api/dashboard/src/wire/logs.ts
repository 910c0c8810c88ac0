export interface LogLine {
  id: number;
  /** null: the controller's */
  rank: number | null;
  at: string;
  level: 'debug' | 'info' | 'warning' | 'error';
  text: string;
  attempt: number;
}

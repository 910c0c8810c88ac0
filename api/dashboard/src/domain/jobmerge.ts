/** Which of two pictures of one job is the later one. */

import type { Job } from '../wire/job';
import { isEnded } from '../wire/job';

/**
 * True where `b` does not go back behind `a`. An answer to a request may be older than what the stream said meanwhile:
 * an end is final, then attempt, generation, step and the time of the heartbeat decide.
 */
export function isNotOlder(a: Job, b: Job): boolean {
  if (isEnded(a.state) !== isEnded(b.state)) return isEnded(b.state);
  const order = [
    (b.attempt ?? 0) - (a.attempt ?? 0),
    (b.generation ?? 0) - (a.generation ?? 0),
    b.step - a.step,
    Date.parse(b.heartbeat_at ?? '') - Date.parse(a.heartbeat_at ?? ''),
  ];
  const first = order.find((difference) => difference !== 0 && !Number.isNaN(difference));
  return first === undefined || first > 0;
}

/** Newest first: ids sort by time of creation. */
export function byNewest(a: Pick<Job, 'id'>, b: Pick<Job, 'id'>): number {
  return a.id < b.id ? 1 : a.id > b.id ? -1 : 0;
}

/** An instant in the reader's zone, exact in UTC on hover. */

import { clockTime, dayTime, utc } from '../domain/format';

export function Moment({ at, clock = false }: { at: string | null; clock?: boolean }) {
  return (
    <time dateTime={at ?? ''} title={utc(at)}>
      {clock ? clockTime(at) : dayTime(at)}
    </time>
  );
}

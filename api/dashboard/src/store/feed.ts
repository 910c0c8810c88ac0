/** The tab's one connection: which stream it follows depends on the page, how it is shown does not. */

import { computed, signal } from '@preact/signals';
import type { JobChange } from '../domain/jobchange';
import type { Job, JobEvent } from '../wire/job';
import { address } from '../wire/rest';
import type { SampleItem } from '../wire/series';
import type { ServerMessage } from '../wire/sse';
import { EventStream, type StreamState } from '../wire/stream';
import { now } from './clock';

export interface FeedListener {
  /** The page must fetch what it shows: first connection, or the service no longer has what came after our cursor. */
  refetch(): void;
  job(change: JobChange): void;
  event(event: JobEvent, jobId: string): void;
  samples(samples: readonly SampleItem[], jobId: string): void;
}

export const feedState = signal<StreamState>('closed');
export const feedStatus = signal(0);
/** When the service was last heard, in ms; 0 before the first time. */
export const heardAt = signal(0);
export const silence_s = computed(() => (heardAt.value ? Math.max(0, (now.value - heardAt.value) / 1000) : 0));

let stream: EventStream | null = null;

/** Follow one job, or all of them; the stream before it is closed. Returns how to stop. */
export function follow(jobId: string | null, listener: FeedListener): () => void {
  stream?.close();
  const path = jobId === null ? 'v1/stream' : `v1/jobs/${encodeURIComponent(jobId)}/stream`;
  const mine = new EventStream(address(path), {
    opened: (resumed) => {
      heardAt.value = Date.now();
      if (!resumed) listener.refetch();
    },
    failedFirst: () => listener.refetch(),
    message: (message) => deliver(message, listener, mine),
    state: (state, status) => {
      if (stream !== mine) return;
      feedState.value = state;
      feedStatus.value = status;
      if (state === 'waiting') now.value = Date.now();
    },
  });
  stream = mine;
  mine.open();
  return () => {
    mine.close();
    if (stream === mine) stream = null;
  };
}

function deliver(message: ServerMessage, listener: FeedListener, from: EventStream): void {
  heardAt.value = Date.now();
  if (message.event === 'resync') {
    // The id of a resync is where the stream goes on from: the cursor stays, what is shown is fetched again.
    if (message.id === null) from.forget();
    listener.refetch();
    return;
  }
  const data = parsed(message.data);
  const jobId = typeof data?.['job_id'] === 'string' ? data['job_id'] : typeof data?.['id'] === 'string' ? data['id'] : null;
  if (!data || jobId === null) return;
  if (message.event === 'state') listener.job({ ...(data as Partial<Job>), id: jobId });
  else if (message.event === 'event') listener.event(data as unknown as JobEvent, jobId);
  else if (message.event === 'sample') listener.samples((data['samples'] as SampleItem[] | undefined) ?? [], jobId);
}

function parsed(data: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(data);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}

/** The service pings every 15 s; somewhat more than that is silence. */
export const QUIET_S = 20;

/** Try at once: something changed that may let the stream in. After sleep a connection may be dead and not know it. */
export const nudge = (): void => stream?.nudge(heardAt.peek() > 0 && Date.now() - heardAt.peek() > 1000 * QUIET_S);

window.addEventListener('online', nudge);
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) nudge();
});

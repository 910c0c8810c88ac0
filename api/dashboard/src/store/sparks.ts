/** What a row of the list shows beyond its page of the list: a small loss curve and the memory, fetched for rows that are looked at. */

import { signal, type Signal } from '@preact/signals';
import { adopt, append, emptySeries, type Series } from '../domain/series';
import type { Job } from '../wire/job';
import { getJob, getMetrics } from '../wire/rest';
import { toPoint, type SampleItem } from '../wire/series';
import { thin } from '../domain/thin';

const POINTS = 48;
const AT_ONCE = 3;

export class Sparks {
  private readonly series = new Map<string, Signal<Series>>();
  private readonly queue: string[] = [];
  private busy = 0;

  constructor(private readonly onJob: (job: Job) => void) {}

  /** The curve of a job; asking for it is what fetches it. */
  of(jobId: string): Signal<Series> {
    const known = this.series.get(jobId);
    if (known) return known;
    const fresh = signal(emptySeries('loss', null));
    this.series.set(jobId, fresh);
    this.queue.unshift(jobId);
    this.pump();
    return fresh;
  }

  append(jobId: string, samples: readonly SampleItem[]): void {
    const curve = this.series.get(jobId);
    if (!curve) return;
    const next = { ...curve.value, points: [...curve.value.points] };
    const added = samples.filter((s) => s.name === 'loss' && s.rank === null && append(next, toPoint(s)));
    if (!added.length) return;
    if (next.points.length > 2 * POINTS) next.points = thin(next.points, POINTS);
    curve.value = next;
  }

  private pump(): void {
    while (this.busy < AT_ONCE && this.queue.length) {
      // Only the rows seen last matter after a long scroll.
      this.queue.splice(60).forEach((dropped) => this.series.delete(dropped));
      void this.fetch(this.queue.shift() as string);
    }
  }

  private async fetch(jobId: string): Promise<void> {
    this.busy += 1;
    try {
      const answer = await getMetrics(jobId, { names: 'loss', points: POINTS });
      this.onJob(await getJob(jobId));
      const found = answer.series.find((s) => s.name === 'loss');
      const curve = this.series.get(jobId);
      if (found && curve) curve.value = adopt({ ...found, points: found.points.map(toPoint) }, curve.value);
    } catch {
      this.series.delete(jobId);
    } finally {
      this.busy -= 1;
      this.pump();
    }
  }
}

/** The jobs in the list: pages fetched as one scrolls, kept current by the stream. */

import { batch, computed, signal } from '@preact/signals';
import { matches, type JobFilter } from '../domain/jobfilter';
import { withSamples, type JobChange } from '../domain/jobchange';
import { byNewest, isNotOlder } from '../domain/jobmerge';
import type { Job } from '../wire/job';
import { asProblem, type Problem } from '../wire/problem';
import { getJob, listJobs } from '../wire/rest';
import type { SampleItem } from '../wire/series';
import { follow } from './feed';
import { Sparks } from './sparks';

const PAGE = 200;

export class JobList {
  private readonly byId = signal<ReadonlyMap<string, Job>>(new Map());
  private cursor: string | null = null;
  private readonly filter = signal<JobFilter>({ search: '', states: [] });
  private fetching = 0;
  private readonly asked = new Set<string>();
  readonly loaded = signal(false);
  readonly loadingMore = signal(false);
  readonly complete = signal(false);
  readonly problem = signal<Problem | null>(null);
  readonly sparks = new Sparks((job) => this.merge([job]));

  /** Sorted once per change, filtered here too, so that a job leaves the list the moment its state does. */
  readonly jobs = computed(() => [...this.byId.value.values()].filter((job) => matches(job, this.filter.value)).sort(byNewest));
  readonly all = computed(() => [...this.byId.value.values()]);

  start(): () => void {
    return follow(null, {
      refetch: () => void this.refetch(),
      job: (job) => this.onJob(job),
      event: () => undefined,
      samples: (samples, jobId) => this.onSamples(samples, jobId),
    });
  }

  setFilter(filter: JobFilter): void {
    const before = this.filter.value;
    if (before.search === filter.search && before.states.join() === filter.states.join()) return;
    this.filter.value = filter;
    if (!this.complete.value) void this.refetch();
  }

  /** From the top; what the stream already said stays unless the answer is newer. */
  async refetch(): Promise<void> {
    const ticket = ++this.fetching;
    try {
      const page = await listJobs({ ...this.serverFilter(), limit: PAGE });
      if (ticket !== this.fetching) return;
      batch(() => {
        this.merge(page.items);
        this.advance(page.next_cursor);
        this.loaded.value = true;
        this.problem.value = null;
      });
    } catch (error) {
      if (ticket === this.fetching) this.problem.value = asProblem(error);
    }
  }

  async more(): Promise<void> {
    if (this.cursor === null || this.loadingMore.value) return;
    const ticket = this.fetching;
    this.loadingMore.value = true;
    try {
      const page = await listJobs({ ...this.serverFilter(), limit: PAGE, cursor: this.cursor });
      if (ticket === this.fetching) batch(() => (this.merge(page.items), this.advance(page.next_cursor)));
    } catch (error) {
      this.problem.value = asProblem(error);
    } finally {
      this.loadingMore.value = false;
    }
  }

  /** The service filters by one state; a wider choice and free text are filtered here, page by page. */
  private serverFilter(): { state?: string } {
    const { states } = this.filter.value;
    return states.length === 1 && states[0] ? { state: states[0] } : {};
  }

  private advance(cursor: string | null): void {
    this.cursor = cursor;
    this.complete.value = cursor === null && this.filter.value.states.length !== 1;
  }

  private merge(jobs: readonly Job[]): void {
    const next = new Map(this.byId.value);
    for (const job of jobs) {
      const known = next.get(job.id);
      // A page of the list leaves memory out: what is known of it stays.
      const memory = job.memory?.per_rank.length ? job.memory : (known?.memory ?? job.memory);
      if (!known || isNotOlder(known, job)) next.set(job.id, { ...job, memory });
      else if (!known.memory?.per_rank.length) next.set(job.id, { ...known, memory });
    }
    this.byId.value = next;
  }

  private onJob(change: JobChange): void {
    const known = this.byId.value.get(change.id);
    if (!known) return void this.fetchUnknown(change.id);
    this.put({ ...known, ...change });
    // A notice leaves out when it started or ended, and what its memory was.
    if (change.state !== known.state) void this.fetch(change.id);
  }

  private put(job: Job): void {
    this.byId.value = new Map(this.byId.value).set(job.id, job);
  }

  /** A job that was not in the list when it was fetched: a new one, or one further down that will come with its page. */
  private async fetchUnknown(id: string): Promise<void> {
    const oldest = this.jobs.value.at(-1)?.id ?? '';
    if (this.cursor !== null && id < oldest) return;
    await this.fetch(id);
  }

  private async fetch(id: string): Promise<void> {
    if (this.asked.has(id)) return;
    this.asked.add(id);
    try {
      this.merge([await getJob(id)]);
    } catch {
      // Deleted meanwhile, or the connection is gone: the next refetch tells.
    } finally {
      this.asked.delete(id);
    }
  }

  private onSamples(samples: readonly SampleItem[], jobId: string): void {
    this.sparks.append(jobId, samples);
    const known = this.byId.value.get(jobId);
    if (known) this.put(withSamples(known, samples));
  }
}

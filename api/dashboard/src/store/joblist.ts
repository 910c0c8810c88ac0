/** The jobs in the list: pages fetched as one scrolls, kept current by the stream. */

import { batch, computed, signal } from '@preact/signals';
import { matches, type JobFilter } from '../domain/jobfilter';
import { withSamples, type JobChange } from '../domain/jobchange';
import { slotMemory } from '../domain/capacity';
import { byNewest, isNotOlder } from '../domain/jobmerge';
import type { Job } from '../wire/job';
import { asProblem, type Problem } from '../wire/problem';
import { getCluster, getJob, listJobs } from '../wire/rest';
import type { SampleItem } from '../wire/series';
import { follow } from './feed';
import { Sparks } from './sparks';

const PAGE = 200;
/** What streams in is shown a few times a second at most: with thousands of jobs each showing costs. */
const SHOW_EVERY_MS = 200;
const CLUSTER_AGAIN_MS = 30_000;

export class JobList {
  private readonly byId = signal<ReadonlyMap<string, Job>>(new Map());
  /** Streamed, not shown yet. */
  private readonly fresh = new Map<string, Job>();
  private showTimer: ReturnType<typeof setTimeout> | undefined;
  private cursor: string | null = null;
  private readonly filter = signal<JobFilter>({ search: '', states: [] });
  private fetching = 0;
  private readonly asked = new Set<string>();
  readonly loaded = signal(false);
  readonly loadingMore = signal(false);
  /** Every job there is, is here. */
  private complete = false;
  readonly hasMore = signal(false);
  readonly problem = signal<Problem | null>(null);
  readonly sparks = new Sparks((job) => this.merge([job]));

  /** How much a worker has, and whether what is offloaded to host memory counts. */
  readonly capacity = signal<{ slot: number | null; countsHost: boolean }>({ slot: null, countsHost: true });

  readonly all = computed(() => sortedBefore(this.byId.value));
  /** Filtered here too, so that a job leaves the list the moment its state does. */
  readonly jobs = computed(() => this.all.value.filter((job) => matches(job, this.filter.value)));

  start(): () => void {
    const stop = follow(null, {
      refetch: () => void this.refetch(),
      job: (job) => this.onJob(job),
      event: () => undefined,
      samples: (samples, jobId) => this.onSamples(samples, jobId),
    });
    const timer = setInterval(() => document.hidden || void this.readCapacity(), CLUSTER_AGAIN_MS);
    void this.readCapacity();
    return () => {
      clearInterval(timer);
      clearTimeout(this.showTimer);
      stop();
    };
  }

  private async readCapacity(): Promise<void> {
    const cluster = await getCluster().catch(() => null);
    if (cluster) this.capacity.value = { slot: slotMemory(cluster), countsHost: cluster.slot_kind === 'cpu' };
  }

  setFilter(filter: JobFilter): void {
    const before = this.filter.value;
    if (before.search === filter.search && before.states.join() === filter.states.join()) return;
    this.filter.value = filter;
    if (!this.complete) void this.refetch();
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
      if (!this.jobs.value.length) void this.more();
    } catch (error) {
      if (ticket === this.fetching) this.problem.value = asProblem(error);
    }
  }

  /** Pages until one brings a job that the filter lets through: a rare state may be far down. */
  async more(): Promise<void> {
    if (this.cursor === null || this.loadingMore.value) return;
    const ticket = this.fetching;
    const before = this.jobs.value.length;
    this.loadingMore.value = true;
    try {
      while (this.cursor !== null && this.jobs.value.length === before) {
        const page = await listJobs({ ...this.serverFilter(), limit: PAGE, cursor: this.cursor });
        if (ticket !== this.fetching) return;
        batch(() => (this.merge(page.items), this.advance(page.next_cursor)));
      }
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
    this.hasMore.value = cursor !== null;
    this.complete = cursor === null && this.filter.value.states.length !== 1;
  }

  private merge(jobs: readonly Job[]): void {
    const next = new Map(this.byId.value);
    this.fresh.forEach((job, id) => next.set(id, job));
    this.fresh.clear();
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
    const known = this.known(change.id);
    if (!known) return void this.fetchUnknown(change.id);
    this.put({ ...known, ...change });
    // A notice leaves out when it started or ended, and what its memory was.
    if (change.state !== known.state) void this.fetch(change.id);
  }

  private known(id: string): Job | undefined {
    return this.fresh.get(id) ?? this.byId.peek().get(id);
  }

  private put(job: Job): void {
    this.fresh.set(job.id, job);
    this.showTimer ??= setTimeout(() => {
      this.showTimer = undefined;
      this.merge([]);
    }, SHOW_EVERY_MS);
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
    const known = this.known(jobId);
    if (known) this.put(withSamples(known, samples));
  }
}

/** Newest first. A map keeps its order when a value changes, so most changes find the order as it was. */
function sortedBefore(byId: ReadonlyMap<string, Job>): Job[] {
  const jobs = [...byId.values()];
  const inOrder = jobs.every((job, i) => i === 0 || byNewest(jobs[i - 1] as Job, job) <= 0);
  return inOrder ? jobs : jobs.sort(byNewest);
}

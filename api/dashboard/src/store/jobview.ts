/** All that the page of one job shows: the job, its timeline, its series, its workers; loaded once, then kept by the stream. */

import { batch, computed, signal } from '@preact/signals';
import { withChange, withSamples, type JobChange } from '../domain/jobchange';
import { isNotOlder } from '../domain/jobmerge';
import { markersOf, skipMarkers } from '../domain/marker';
import { KIND_METRIC, MEMORY_KINDS, rankMemory, stackOf, stacksOf, type RankStack } from '../domain/memory';
import { predictedOf } from '../domain/planparts';
import { adopt, append, emptySeries, keyOf, lastPoint, type Series } from '../domain/series';
import { restingOf, TIER_IN_PLAN, type Tier } from '../domain/tiers';
import type { Job, JobEvent, Worker } from '../wire/job';
import type { PlanChoice } from '../wire/plan';
import { asProblem, type Problem } from '../wire/problem';
import { getCluster, getEvents, getJob, getMetrics, getWorkers } from '../wire/rest';
import { toPoint, type SampleItem, type SeriesAnswer } from '../wire/series';
import { Detail } from './detail';
import { follow } from './feed';
import { Prediction } from './prediction';

export const GROUP_METRICS = 'grad_norm,lr,tokens_per_s,step_s,compute_s,comm_s,data_s,optimizer_s,workers,mfu,skipped_steps';
export const MEMORY_METRICS = [...MEMORY_KINDS.map((kind) => KIND_METRIC[kind]), 'mem_process_bytes', 'mem_predicted_bytes', 'mem_host_bytes', 'mem_nvme_bytes'].join(',');
const GROUP_POINTS = 1000;
const MEMORY_POINTS = 240;
const DRAW_EVERY_MS = 200;

export class JobView {
  readonly job = signal<Job | null>(null);
  readonly events = signal<readonly JobEvent[]>([]);
  readonly workers = signal<readonly Worker[]>([]);
  readonly problem = signal<Problem | null>(null);
  readonly metricsLoaded = signal(false);
  /** Grows, a few times a second at most, when a series has changed. */
  readonly version = signal(0);
  private readonly skips = computed(() => (this.version.value, skipMarkers(this.get('skipped_steps')?.points ?? [])));
  readonly markers = computed(() => [...markersOf(this.events.value), ...this.skips.value]);
  readonly series = new Map<string, Series>();
  private drawTimer: ReturnType<typeof setTimeout> | undefined;
  private fetching = 0;
  /** What the stream said before the job itself was here. */
  private early: JobChange[] = [];

  readonly detail: Detail;
  private readonly prediction = new Prediction();

  constructor(readonly id: string) {
    this.detail = new Detail(id, `loss,${GROUP_METRICS},${MEMORY_METRICS}`);
  }

  start(): () => void {
    const stop = follow(this.id, {
      refetch: () => void this.refetch(),
      job: (job) => this.onJob(job),
      event: (event) => this.onEvent(event),
      samples: (samples) => this.onSamples(samples),
    });
    return () => {
      clearTimeout(this.drawTimer);
      stop();
    };
  }

  get(name: string, rank: number | null = null): Series | undefined {
    return this.series.get(keyOf(name, rank));
  }

  /** For a chart: the closer look where one was taken. */
  drawn(name: string, rank: number | null = null): Series | undefined {
    return this.detail.get(name, rank) ?? this.get(name, rank);
  }

  ranksOf(name: string): number[] {
    const ranks = [...this.series.values()].filter((s) => s.name === name && s.rank !== null).map((s) => s.rank as number);
    return ranks.sort((a, b) => a - b);
  }

  /** Ranks of the present generation: those whose newest memory is of the newest generation. */
  presentRanks(): Set<number> {
    const newest = this.ranksOf('mem_params_bytes').map((rank) => [rank, lastPoint(this.get('mem_params_bytes', rank))?.generation ?? -1] as const);
    const generation = Math.max(...newest.map(([, g]) => g));
    return new Set(newest.filter(([, g]) => g === generation).map(([rank]) => rank));
  }

  /** What the ranks of the present generation hold, from their newest points; from the job itself before those are here. */
  memory(): RankStack[] {
    const present = this.presentRanks();
    if (!present.size) return stacksOf(this.job.value?.memory ?? null);
    const bytes = (name: string, rank: number): number | null => {
      const value = lastPoint(this.get(name, rank))?.value;
      return value !== undefined && Number.isFinite(value) ? value : null;
    };
    const now = this.predicted(this.last('workers') ?? 0);
    return [...present]
      .sort((a, b) => a - b)
      .map((rank) => stackOf(rankMemory(rank, (name) => bytes(name, rank))))
      .map((stack) => ({ ...stack, predicted: stack.predicted ?? now }));
  }

  /** The planner's bytes of a rank at this number of workers, of the kinds that are measured here. */
  predicted(workers: number, tier: Tier = 'device'): number | null {
    return predictedOf(this.prediction.of(workers), (metric) => this.ranksOf(metric).length > 0, TIER_IN_PLAN[tier]);
  }

  /** The planner's line for this number of workers; asked for the first time it is wanted. */
  planned(workers: number): PlanChoice | undefined {
    const job = this.job.value;
    if (job) this.prediction.want(job.spec, job.stage, [workers]);
    return this.prediction.of(workers);
  }

  /** Tiers that hold something of any rank. */
  tiers(): Tier[] {
    const holds = (name: string): boolean => this.ranksOf(name).some((rank) => this.get(name, rank)?.points.some((p) => p.max > 0));
    return ['device', ...(holds('mem_host_bytes') ? ['host' as const] : []), ...(holds('mem_nvme_bytes') ? ['nvme' as const] : [])];
  }

  readonly capacity = computed(() => this.prediction.capacity.value);
  private readonly slotKind = signal<string | null>(null);
  /** Its workers' device is their own memory. */
  readonly onCpu = computed(() => this.slotKind.value === 'cpu' || (this.job.value?.spec['resources'] as { gpu?: number | null } | undefined)?.gpu === 0);

  /** Asked for the first time it matters. */
  async learnSlotKind(): Promise<void> {
    this.slotKind.value ??= (await getCluster().catch(() => null))?.slot_kind ?? null;
  }
  readonly resting = computed(() => (this.job.value ? restingOf(this.job.value.spec, this.job.value.stage) : {}));

  last(name: string): number | null {
    return lastPoint(this.get(name))?.value ?? null;
  }

  /** The loss is asked for at once and by itself: the first chart waits for nothing else. */
  async refetch(): Promise<void> {
    const ticket = ++this.fetching;
    const loss = this.fetchSeries('loss', GROUP_POINTS);
    try {
      await Promise.all([this.fetchJob(), loss]);
      if (ticket !== this.fetching) return;
      await Promise.all([this.fetchEvents(), this.fetchWorkers(), this.fetchSeries(GROUP_METRICS, GROUP_POINTS)]);
      await this.fetchSeries(MEMORY_METRICS, MEMORY_POINTS);
    } catch (error) {
      if (ticket === this.fetching) this.problem.value = asProblem(error);
    }
  }

  private async fetchJob(): Promise<void> {
    const job = await getJob(this.id);
    batch(() => {
      const known = this.job.value;
      if (!known || isNotOlder(known, job)) this.job.value = this.early.reduce(withChange, job);
      this.early = [];
      this.problem.value = null;
    });
  }

  private async fetchEvents(): Promise<void> {
    let after: string | number | null = null;
    for (;;) {
      const answer: { items: JobEvent[]; next_after: string | number | null } = await getEvents(this.id, after);
      this.addEvents(answer.items);
      if (!answer.items.length || answer.next_after === null || answer.next_after === after) return;
      after = answer.next_after;
    }
  }

  async fetchWorkers(): Promise<void> {
    this.workers.value = (await getWorkers(this.id)).items;
  }

  private async fetchSeries(names: string, points: number): Promise<void> {
    const answer = await getMetrics(this.id, { names, points });
    answer.series.forEach((s) => this.adopt(s));
    this.metricsLoaded.value = true;
    this.changed();
  }

  private adopt(answer: SeriesAnswer): void {
    const key = keyOf(answer.name, answer.rank);
    this.series.set(key, adopt({ ...answer, points: answer.points.map(toPoint) }, this.series.get(key)));
  }

  private onJob(change: JobChange): void {
    const known = this.job.value;
    if (!known) return void this.early.push(change);
    const next = { ...known, ...change };
    const membersChanged = known.generation !== next.generation || known.state !== next.state;
    this.job.value = next;
    if (membersChanged) void this.fetchWorkers().catch(() => undefined);
    // A notice leaves out when it started or ended, and what its memory was.
    if (known.state !== next.state) void this.fetchJob().catch(() => undefined);
  }

  private onEvent(event: JobEvent): void {
    this.addEvents([event]);
    if (/lost|resized|recovered|started/.test(event.kind)) void this.fetchWorkers().catch(() => undefined);
  }

  private addEvents(items: readonly JobEvent[]): void {
    const known = new Set(this.events.value.map((event) => String(event.id)));
    const fresh = items.filter((event) => !known.has(String(event.id)));
    if (fresh.length) this.events.value = [...this.events.value, ...fresh].sort((a, b) => Number(a.id) - Number(b.id));
  }

  private onSamples(samples: readonly SampleItem[]): void {
    for (const sample of samples) {
      const rank = sample.rank ?? null;
      const key = keyOf(sample.name, rank);
      let series = this.series.get(key);
      if (!series) this.series.set(key, (series = emptySeries(sample.name, rank)));
      append(series, toPoint(sample));
    }
    if (this.job.value) this.job.value = withSamples(this.job.value, samples);
    this.changed();
  }

  private changed(): void {
    const wait_ms = this.version.peek() === 0 ? 0 : DRAW_EVERY_MS;
    this.drawTimer ??= setTimeout(() => {
      this.drawTimer = undefined;
      const job = this.job.value;
      if (job) this.prediction.want(job.spec, job.stage, new Set(this.get('workers')?.points.map((p) => p.value)));
      this.version.value += 1;
    }, wait_ms);
  }
}

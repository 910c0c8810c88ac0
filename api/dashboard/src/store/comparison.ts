/** The jobs that are compared: which there are to choose from, and the curves of those chosen. */

import { computed, signal } from '@preact/signals';
import type { Curve } from '../domain/overlay';
import { isEnded, type Job } from '../wire/job';
import { asProblem, type Problem } from '../wire/problem';
import { getJob, getMetrics, listJobs } from '../wire/rest';
import { toPoint } from '../wire/series';

const AGAIN_MS = 4_000;
const POINTS = 1000;

export class Comparison {
  readonly offered = signal<readonly Job[]>([]);
  readonly curves = signal<readonly (Curve & { job: Job })[]>([]);
  readonly problem = signal<Problem | null>(null);
  readonly loading = signal(false);
  readonly moving = computed(() => this.curves.value.some((curve) => !isEnded(curve.job.state)));
  private timer: ReturnType<typeof setInterval> | undefined;
  private wanted: readonly string[] = [];
  private metric = 'loss';
  private ticket = 0;

  start(): () => void {
    listJobs({ limit: 100 }).then(
      (page) => (this.offered.value = page.items),
      (error: unknown) => (this.problem.value = asProblem(error)),
    );
    this.timer = setInterval(() => {
      if (this.moving.value && !document.hidden) void this.load();
    }, AGAIN_MS);
    return () => clearInterval(this.timer);
  }

  show(ids: readonly string[], metric: string): void {
    if (ids.join() === this.wanted.join() && metric === this.metric) return;
    this.wanted = ids;
    this.metric = metric;
    void this.load();
  }

  private async load(): Promise<void> {
    const ticket = ++this.ticket;
    this.loading.value = this.wanted.length > 0;
    try {
      const curves = await Promise.all(this.wanted.map((id) => this.curve(id)));
      if (ticket !== this.ticket) return;
      this.curves.value = curves;
      this.problem.value = null;
    } catch (error) {
      if (ticket === this.ticket) this.problem.value = asProblem(error);
    } finally {
      if (ticket === this.ticket) this.loading.value = false;
    }
  }

  private async curve(id: string): Promise<Curve & { job: Job }> {
    const [job, answer] = await Promise.all([getJob(id), getMetrics(id, { names: this.metric, points: POINTS })]);
    const series = answer.series.find((s) => s.rank === null) ?? answer.series[0];
    return { jobId: id, job, spec: job.spec, points: (series?.points ?? []).map(toPoint) };
  }
}

/** A closer look: the series of a zoomed window, fetched in as many points as the window can show. */

import { signal } from '@preact/signals';
import { keyOf, type Series } from '../domain/series';
import { aroundOf, detailPoints, type StepWindow } from '../domain/zoom';
import { getMetrics } from '../wire/rest';
import { toPoint } from '../wire/series';

export class Detail {
  private readonly found = signal<ReadonlyMap<string, Series>>(new Map());
  private wanted = '';

  constructor(
    private readonly jobId: string,
    private readonly names: string,
  ) {}

  get(name: string, rank: number | null): Series | undefined {
    return this.found.value.get(keyOf(name, rank));
  }

  /** Null: the whole run, for which the series that stream are fine enough. */
  async look(window: StepWindow | null, base: Series | undefined): Promise<void> {
    const points = window && base ? detailPoints(base.points, window) : null;
    const key = points === null ? '' : `${window?.from}-${window?.to}`;
    if (key === this.wanted) return;
    this.wanted = key;
    if (points === null || window === null) {
      this.found.value = new Map();
      return;
    }
    const { from, to } = aroundOf(window);
    const answer = await getMetrics(this.jobId, { names: this.names, points, from_step: from, to_step: to }).catch(() => null);
    if (!answer || key !== this.wanted) return;
    this.found.value = new Map(answer.series.map((series) => [keyOf(series.name, series.rank), { ...series, points: series.points.map(toPoint) }]));
  }
}

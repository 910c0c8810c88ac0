/** The memberships of a job one after the other, read off the series of its workers. */

import type { JobEvent } from '../wire/job';
import { pointAt, type Series } from './series';

export interface GenerationSpan {
  generation: number;
  workers: number;
  from: number;
  to: number;
  since: string;
  until: string;
  /** Mean of tokens/s over its steps, or null where none is known. */
  rate: number | null;
}

export function generationsOf(workers: Series | undefined, rate: Series | undefined): GenerationSpan[] {
  const spans: GenerationSpan[] = [];
  for (const point of workers?.points ?? []) {
    const last = spans.at(-1);
    if (last?.generation === point.generation) Object.assign(last, { to: point.step, until: point.at, workers: point.value });
    else spans.push({ generation: point.generation, workers: point.value, from: (last?.to ?? 0) + 1, to: point.step, since: point.at, until: point.at, rate: null });
  }
  return spans.map((span) => ({ ...span, rate: meanRate(rate, span) }));
}

function meanRate(rate: Series | undefined, span: GenerationSpan): number | null {
  const values = (rate?.points ?? []).filter((p) => p.generation === span.generation && Number.isFinite(p.value)).map((p) => p.value);
  if (values.length) return values.reduce((sum, value) => sum + value, 0) / values.length;
  const near = pointAt(rate, span.to)?.value;
  return near !== undefined && Number.isFinite(near) ? near : null;
}

/** One rank through the generations: from which step to which it was filled, and where its worker was lost. */
export interface Lane {
  rank: number;
  bars: readonly { generation: number; from: number; to: number }[];
  losses: readonly { step: number; what: string }[];
}

/** Ranks are numbered from 0 without a hole, so a generation of n workers fills the first n lanes. */
export function lanesOf(spans: readonly GenerationSpan[], events: readonly JobEvent[]): Lane[] {
  const widest = spans.reduce((most, span) => Math.max(most, span.workers), 0);
  const lost = events.filter((event) => event.kind === 'worker_lost' && event.step !== null);
  return Array.from({ length: widest }, (_, rank) => ({
    rank,
    bars: spans.filter((span) => rank < span.workers).map(({ generation, from, to }) => ({ generation, from, to })),
    losses: lost
      .filter((event) => event.payload['rank'] === rank)
      .map((event) => ({ step: event.step as number, what: event.message || `worker lost: ${String(event.payload['reason'] ?? '')}` })),
  }));
}

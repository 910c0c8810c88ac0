/** What an event looks like on a chart and in the timeline: a tone, a word and one sentence with its numbers. */

import type { JobEvent } from '../wire/job';
import type { Point } from '../wire/series';
import { bytes, duration, text, whole } from './format';

export type Tone = 'calm' | 'good' | 'change' | 'warn' | 'bad';

export interface Marker {
  step: number;
  kind: string;
  tone: Tone;
  /** Lines across the whole chart; the others are ticks at its foot. */
  tall: boolean;
  label: string;
  eventId: string;
}

const TONES: Readonly<Record<string, Tone>> = {
  started: 'good',
  running: 'good',
  resumed: 'good',
  succeeded: 'good',
  checkpoint_saved: 'good',
  started_from: 'good',
  scaled: 'change',
  resizing: 'change',
  resized: 'change',
  stage_changed: 'change',
  adopted: 'change',
  recovering: 'warn',
  recovered: 'warn',
  requeued: 'warn',
  step_skipped: 'warn',
  cancelling: 'warn',
  cancelled: 'warn',
  workers_missing: 'warn',
  checkpoint_dropped: 'warn',
  checkpoint_passed_over: 'warn',
  worker_hung: 'bad',
  failed: 'bad',
};

const TALL: ReadonlySet<string> = new Set([
  ...['resized', 'resumed', 'stage_changed', 'adopted', 'recovered', 'step_skipped', 'started_from'],
  ...['worker_lost', 'worker_hung', 'worker_crashed', 'collective_failed', 'attempt_lost', 'failed'],
  ...['checkpoint_failed', 'checkpoint_passed_over'],
]);

/** Said many times on the way to a checkpoint, which is marked itself: lines of the timeline, but no marks. */
const UNMARKED: ReadonlySet<string> = new Set(['checkpoint_started', 'checkpoint_progress', 'fact_dropped']);

/** A change of stage travels as one of scale. */
export const kindOf = (event: JobEvent): string => (stagesOf(event) ? 'stage_changed' : event.kind);

function stagesOf(event: JobEvent): string | null {
  const { from_stage: from, to_stage: to } = event.payload ?? {};
  return to === undefined ? null : `${String(from)} → ${String(to)}`;
}

export const toneOf = (kind: string): Tone => TONES[kind] ?? (/lost|fail|error|refus|crash/.test(kind) ? 'bad' : 'calm');

export const nameOf = (kind: string): string => kind.replaceAll('_', ' ');

/** A number of workers, or bounds of one: 3, 1–4. */
function sizeOf(value: unknown): string | null {
  if (typeof value === 'number' || typeof value === 'string') return String(value);
  if (typeof value !== 'object' || value === null) return null;
  const { min, max } = value as { min?: number; max?: number };
  if (min === undefined || max === undefined) return null;
  return min === max ? String(min) : `${min}–${max}`;
}

const LONGEST_IN_LINE = 80;
const SHOWN_APART: ReadonlySet<string> = new Set(['from', 'to', 'reason', 'step', 'attempt']);

/** `name_s` is a duration, `name_bytes` a size: the units are in the names. */
function detail(name: string, value: unknown): string | null {
  if (typeof value === 'number') {
    if (name.endsWith('_s')) return `${nameOf(name.slice(0, -2))} ${duration(value)}`;
    if (name.endsWith('_bytes')) return `${text(bytes(value))} ${nameOf(name.slice(0, -6))}`;
    if (name === 'pid') return `pid ${value}`;
    return `${nameOf(name)} ${Number.isInteger(value) ? whole(value) : value.toPrecision(3)}`;
  }
  if (typeof value === 'string' && value.length > 0 && value.length <= LONGEST_IN_LINE) return `${nameOf(name)} ${value}`;
  if (name === 'workers' && sizeOf(value)) return `workers ${sizeOf(value)}`;
  if (typeof value === 'boolean') return `${nameOf(name)} ${value ? 'yes' : 'no'}`;
  return null;
}

/** "resized 2 → 3 workers · pause 420 ms · 1.20 MiB moved" */
export function sentence(event: JobEvent): string {
  const { from, to, reason } = event.payload ?? {};
  const stages = stagesOf(event);
  if (stages) return `${nameOf(kindOf(event))} ${stages} · ${event.message ?? ''}`;
  const change = sizeOf(from) && sizeOf(to) ? ` ${sizeOf(from)} → ${sizeOf(to)} workers` : '';
  // The service's own sentence says it all; what it has none for is told from the numbers.
  if (event.message && !change) return `${nameOf(event.kind)} · ${event.message}`;
  const details = Object.entries(event.payload ?? {})
    .filter(([name]) => !SHOWN_APART.has(name))
    .map(([name, value]) => detail(name, value))
    .filter((part) => part !== null);
  const words = typeof reason === 'string' && reason !== '' ? [reason] : [];
  return [nameOf(event.kind) + change, ...details, ...words].join(' · ');
}

/** Texts too long for a line, as a traceback, by the name of their field. */
export const longTexts = (event: JobEvent): [string, string][] =>
  Object.entries(event.payload ?? {}).filter((field): field is [string, string] => typeof field[1] === 'string' && field[0] !== 'reason' && field[1].length > LONGEST_IN_LINE);

export function markersOf(events: readonly JobEvent[]): Marker[] {
  return events
    .filter((event) => event.step !== null && event.step !== undefined && !UNMARKED.has(event.kind))
    .map((event) => mark(kindOf(event), event.step as number, sentence(event), String(event.id)));
}

const mark = (kind: string, step: number, label: string, eventId: string): Marker => ({ step, kind, tone: toneOf(kind), tall: TALL.has(kind), label, eventId });

/** Steps that touched no state, read off the series that counts them; a bucket of several is marked at its end. */
export function skipMarkers(counted: readonly Point[]): Marker[] {
  let known = 0;
  const found: Marker[] = [];
  for (const point of counted) {
    const more = point.value - known;
    if (more > 0) found.push(mark('step_skipped', point.step, `${more === 1 ? 'a step' : `${more} steps`} skipped: a gradient was not finite`, `skip-${point.step}`));
    // A rollback takes skipped steps back as well.
    if (Number.isFinite(point.value)) known = point.value;
  }
  return found;
}

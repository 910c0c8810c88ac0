/** Where the bytes of a rank rest: on the device, in host memory or on a disk; measured by kind and, beside that, by tier. */

import type { JobSpec } from '../wire/job';
import { KIND_SHORT, MEMORY_KINDS, type MemoryKind, type RankStack } from './memory';

export const TIERS = ['device', 'host', 'nvme'] as const;
export type Tier = (typeof TIERS)[number];

export const TIER_LABEL: Record<Tier, string> = { device: 'on the device', host: 'in host memory', nvme: 'on NVMe' };
/** The planner's words for the same. */
export const TIER_IN_PLAN: Record<Tier, string> = { device: 'device', host: 'cpu', nvme: 'nvme' };

/** Kinds that a tier may hold, what passes through host memory on its way to a disk, and what no kind accounts for. */
export const TIER_KINDS = [...MEMORY_KINDS, 'staging', 'other'] as const;
export type TierKind = (typeof TIER_KINDS)[number];
export const TIER_KIND_LABEL: Record<TierKind, string> = { ...KIND_SHORT, staging: 'passing through', other: 'other' };
export type ByKind = Partial<Record<TierKind, number>>;

interface Offload {
  optimizer: string;
  params: string | null;
  ratio: number | string;
}

/** The long form of `offload`, whichever form the spec has. */
export function offloadOf(spec: JobSpec): Offload {
  const said = spec['offload'];
  const fields = typeof said === 'object' && said !== null ? (said as Partial<Offload>) : { optimizer: String(said ?? 'none') };
  return { optimizer: fields.optimizer ?? 'none', params: fields.params ?? null, ratio: fields.ratio ?? 1 };
}

const TIER_OF: Readonly<Record<string, Tier>> = { none: 'device', cpu: 'host', nvme: 'nvme' };

/** Gradient shards go to host memory with the optimizer's state; parameters move at stage 3 alone, with it where nothing else is said. */
export function restingOf(spec: JobSpec, stage: number | string | null): Partial<Record<MemoryKind, Tier>> {
  const { optimizer, params } = offloadOf(spec);
  const level = Number(stage);
  return {
    optimizer: TIER_OF[optimizer] ?? 'device',
    grads: optimizer !== 'none' && level >= 2 ? 'host' : 'device',
    params: level === 3 ? (TIER_OF[params ?? optimizer] ?? 'device') : 'device',
  };
}

/** What the planner calls this offload: none, cpu and nvme, else what differs from them. */
export function offloadLabel(spec: JobSpec): string {
  const { optimizer, params, ratio } = offloadOf(spec);
  const parts = [optimizer];
  if (params !== null && params !== optimizer) parts.push(`params ${params}`);
  if (ratio !== 1 && !(optimizer === 'none' && (params === null || params === 'none'))) parts.push(`ratio ${ratio}`);
  return parts.join(', ');
}

/**
 * The measured kinds laid out over the tiers. The same part of every kind that is offloaded to a tier rests there, so the
 * tier's bytes are shared out in proportion; what they hold beyond those kinds is staging.
 */
export function byTier(kinds: ByKind, far: { host: number; nvme: number }, resting: Partial<Record<MemoryKind, Tier>>): Record<Tier, ByKind> {
  const placed: Record<Tier, ByKind> = { device: { ...kinds }, host: {}, nvme: {} };
  for (const tier of ['host', 'nvme'] as const) {
    const here = MEMORY_KINDS.filter((kind) => resting[kind] === tier);
    const whole = here.reduce((sum, kind) => sum + (kinds[kind] ?? 0), 0);
    const share = whole > 0 ? Math.min(1, far[tier] / whole) : 0;
    for (const kind of here) {
      const part = (kinds[kind] ?? 0) * share;
      placed[tier][kind] = part;
      placed.device[kind] = (kinds[kind] ?? 0) - part;
    }
    if (far[tier] > whole) placed[tier].staging = far[tier] - whole;
  }
  return placed;
}

/** With what the process holds beside the kinds: interpreter, libraries, buffers of the transport. On a CPU the device's memory is its own. */
export function withOther(placed: Record<Tier, ByKind>, process: number, onCpu: boolean): Record<Tier, ByKind> {
  const rest = process - sum(placed.host) - (onCpu ? sum(placed.device) : 0);
  const home = onCpu ? 'device' : 'host';
  return rest > 0 ? { ...placed, [home]: { ...placed[home], other: rest } } : placed;
}

export function placedOf(stack: RankStack, resting: Partial<Record<MemoryKind, Tier>>): Record<Tier, ByKind> {
  const kinds: ByKind = Object.fromEntries(stack.parts.map(({ kind, bytes }) => [kind, bytes]));
  return byTier(kinds, { host: stack.host, nvme: stack.nvme }, resting);
}

export interface Slab {
  kind: TierKind;
  bytes: number;
}

/** Several tiers on top of each other, kind by kind. */
export const slabsOf = (held: readonly ByKind[]): Slab[] =>
  TIER_KINDS.map((kind) => ({ kind, bytes: held.reduce((total, one) => total + (one[kind] ?? 0), 0) })).filter((slab) => slab.bytes > 0);

export const sum = (kinds: ByKind): number => Object.values(kinds).reduce((total, bytes) => total + (bytes ?? 0), 0);

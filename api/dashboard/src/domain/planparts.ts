/** A line of a plan in the kinds that the page draws. */

import type { PlanChoice } from '../wire/plan';
import { MEMORY_KINDS, type MemoryKind } from './memory';

/** Finer kinds of the planner and the one they belong to; a kind that nobody knows yet counts as gathered. */
const HOME: Readonly<Record<string, MemoryKind>> = {
  params: 'params',
  grads: 'grads',
  optimizer: 'optimizer',
  master: 'optimizer',
  activations_peak: 'activations',
  activations: 'activations',
  logits_peak: 'activations',
  backward_peak: 'activations',
};

/** Bytes on one tier by kind. */
export function partsOn(choice: PlanChoice, tier: string): { kind: MemoryKind; bytes: number }[] {
  const sums = new Map<MemoryKind, number>(MEMORY_KINDS.map((kind) => [kind, 0]));
  for (const [name, tiers] of Object.entries(choice.bytes_by_kind)) {
    const kind = HOME[name] ?? 'gathered';
    sums.set(kind, (sums.get(kind) ?? 0) + (tiers[tier] ?? 0));
  }
  return [...sums].map(([kind, bytes]) => ({ kind, bytes }));
}

/** What the planner says of the kinds that have a metric here, so that the same things are compared; null where none has. */
export function predictedOf(choice: PlanChoice | undefined, hasMetric: (name: string) => boolean, tier = 'device'): number | null {
  if (!choice) return null;
  const same = Object.entries(choice.bytes_by_kind).filter(([kind]) => hasMetric(`mem_${kind}_bytes`));
  return same.length ? same.reduce((sum, [, tiers]) => sum + (tiers[tier] ?? 0), 0) : null;
}

export const bytesOn = (choice: PlanChoice, tier: string): number => partsOn(choice, tier).reduce((sum, part) => sum + part.bytes, 0);

/** Tiers beside the device that this choice uses. */
export const otherTiers = (choice: PlanChoice): string[] =>
  [...new Set(Object.values(choice.bytes_by_kind).flatMap((tiers) => Object.keys(tiers).filter((t) => t !== 'device' && (tiers[t] ?? 0) > 0)))].sort();

export const offloadsOf = (choices: readonly PlanChoice[]): string[] => [...new Set(choices.map((c) => c.offload))];
export const sizesOf = (choices: readonly PlanChoice[]): number[] => [...new Set(choices.map((c) => c.workers))].sort((a, b) => a - b);
export const stagesOf = (choices: readonly PlanChoice[]): number[] => [...new Set(choices.map((c) => c.stage))].sort((a, b) => a - b);

/** Memories that accelerators have, and some that have them; what a driver takes is not counted. */
export const ACCELERATORS: readonly { name: string; example: string; bytes: number }[] = [
  { name: '16 GiB', example: 'T4, V100', bytes: 16 * 2 ** 30 },
  { name: '24 GiB', example: 'L4, A10', bytes: 24 * 2 ** 30 },
  { name: '40 GiB', example: 'A100', bytes: 40 * 2 ** 30 },
  { name: '80 GiB', example: 'A100, H100', bytes: 80 * 2 ** 30 },
  { name: '141 GiB', example: 'H200', bytes: 141 * 2 ** 30 },
  { name: '192 GiB', example: 'MI300X', bytes: 192 * 2 ** 30 },
];

/** A tenth stays free for the allocator and what no formula sees. */
const USABLE = 0.9;

/** The smallest memory that holds it with a tenth to spare. */
export function smallestThatHolds(bytes: number): string {
  return ACCELERATORS.find((one) => bytes <= USABLE * one.bytes)?.name ?? 'no single accelerator';
}

/** Without offload where that fits, then on the fewest workers, then at the lowest stage; null where nothing fits. */
export function easiestOn(choices: readonly PlanChoice[], bytes: number): PlanChoice | null {
  const fitting = choices.filter((choice) => bytesOn(choice, 'device') <= USABLE * bytes);
  const offloads = offloadsOf(choices);
  const rank = (c: PlanChoice): number[] => [offloads.indexOf(c.offload), c.workers, c.stage];
  return fitting.sort((a, b) => rank(a).map((v, i) => v - (rank(b)[i] ?? 0)).find((d) => d !== 0) ?? 0)[0] ?? null;
}

/** Accelerators of growing memory with what is easiest on them; one line where the next ones need nothing else. */
export function accelerators(choices: readonly PlanChoice[]): { name: string; example: string; andLarger: boolean; choice: PlanChoice | null }[] {
  const lines: ReturnType<typeof accelerators> = [];
  for (const { name, example, bytes } of ACCELERATORS) {
    const choice = easiestOn(choices, bytes);
    const last = lines.at(-1);
    if (last && last.choice === choice) last.andLarger = true;
    else lines.push({ name, example, andLarger: false, choice });
  }
  return lines;
}

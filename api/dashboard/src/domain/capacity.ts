/** How much memory one worker has. */

import type { Cluster } from '../wire/cluster';
import type { JobSpec } from '../wire/job';

/** Of the smallest slot there is: an accelerator's own memory, else a share of the host's; null where no node says. */
export function slotMemory(cluster: Pick<Cluster, 'nodes' | 'slot_kind'>): number | null {
  const sizes = cluster.nodes.filter((node) => node.alive && node.slots).map((node) => (cluster.slot_kind === 'gpu' ? node.accelerator_memory_bytes : node.memory_bytes && Math.floor(node.memory_bytes / node.slots)));
  const known = sizes.filter((size) => size !== null && size > 0) as number[];
  return known.length ? Math.min(...known) : null;
}

/** Of host memory no more than the spec asks for. */
export function capacityOf(spec: JobSpec, slot: number | null, countsHost = true): number | null {
  if (!countsHost) return slot;
  const asked = (spec['resources'] as { memory_gb?: number | null } | null | undefined)?.memory_gb;
  const limits = [slot, asked ? Math.floor(asked * 2 ** 30) : null].filter((one) => one !== null);
  return limits.length ? Math.min(...limits) : null;
}

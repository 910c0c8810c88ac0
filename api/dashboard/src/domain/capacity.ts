/** How much memory one worker has. */

import type { Cluster } from '../wire/cluster';
import type { JobSpec } from '../wire/job';

/** Of the smallest slot there is; null where no node says. */
export function slotMemory(cluster: Pick<Cluster, 'nodes'>): number | null {
  const known = cluster.nodes.filter((node) => node.alive && node.memory_bytes && node.slots).map((node) => Math.floor((node.memory_bytes ?? 0) / node.slots));
  return known.length ? Math.min(...known) : null;
}

/** No more than the spec asks for. */
export function capacityOf(spec: JobSpec, slot: number | null): number | null {
  const asked = (spec['resources'] as { memory_gb?: number | null } | null | undefined)?.memory_gb;
  const limits = [slot, asked ? Math.floor(asked * 2 ** 30) : null].filter((one) => one !== null);
  return limits.length ? Math.min(...limits) : null;
}

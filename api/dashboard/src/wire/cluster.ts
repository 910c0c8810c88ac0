/** The cluster as the API says it. */

export interface ClusterNode {
  id: string;
  address: string;
  alive: boolean;
  slots: number;
  memory_bytes: number | null;
  accelerator: string | null;
}

export interface Cluster {
  nodes: ClusterNode[];
  slot_kind: 'gpu' | 'cpu';
  slots: number;
  slots_free: number;
  /** What the autoscaler may reach. */
  max_slots: number;
  used: { job_id: string; name: string | null; slots: number; workers: number }[];
  pending: { job_id: string; name: string | null; slots: number; reason: string }[];
}

/** The cluster as the API says it. */

import type { Worker } from './job';

export interface ClusterNode {
  id: string;
  address: string;
  alive: boolean;
  slots: number;
  /** Of the host. */
  memory_bytes: number | null;
  accelerator: string | null;
  accelerator_memory_bytes: number | null;
}

export interface SlotUse {
  job_id: string;
  name: string | null;
  slots: number;
  workers: number;
  /** Of the present generation, by rank. */
  members: Worker[];
}

export interface Cluster {
  nodes: ClusterNode[];
  slot_kind: 'gpu' | 'cpu';
  slots: number;
  slots_free: number;
  /** What the autoscaler may reach. */
  max_slots: number;
  used: SlotUse[];
  pending: { job_id: string; name: string | null; slots: number; reason: string }[];
  /** Of the keys that have one. */
  quotas: { key_id: string; name: string; slots: number; quota_slots: number }[];
}

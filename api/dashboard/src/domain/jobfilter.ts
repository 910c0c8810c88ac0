/** Which jobs the list shows; the filter lives in the address, so a link keeps it. */

import type { Job, JobState } from '../wire/job';
import { isActive, isEnded } from '../wire/job';

export const GROUPS = ['all', 'active', 'waiting', 'ended'] as const;
export type Group = (typeof GROUPS)[number];

export interface JobFilter {
  search: string;
  states: readonly JobState[];
}

export function groupOf(state: JobState): Exclude<Group, 'all'> {
  return isEnded(state) ? 'ended' : isActive(state) ? 'active' : 'waiting';
}

/** Every word of the search must stand in the name, the id, the model or the reason. */
export function matches(job: Job, filter: JobFilter): boolean {
  if (filter.states.length && !filter.states.includes(job.state)) return false;
  const words = filter.search.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return true;
  const hay = [job.name, job.id, modelLabel(job.spec.model), job.state, job.reason].join(' ').toLowerCase();
  return words.every((word) => hay.includes(word));
}

export function modelLabel(model: unknown): string {
  if (typeof model === 'string') return model;
  if (typeof model !== 'object' || model === null) return '–';
  const fields = model as Record<string, unknown>;
  if (typeof fields['hf'] === 'string') return fields['hf'];
  if (typeof fields['python'] === 'string') return fields['python'];
  return `gpt ${fields['layers'] ?? '?'}×${fields['width'] ?? '?'}`;
}

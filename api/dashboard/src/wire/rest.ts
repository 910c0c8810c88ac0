/** Every request the page makes, one function each. Addresses are relative, so a proxy's prefix is kept. */

import type { Checkpoint, Verified } from './checkpoint';
import type { Cluster } from './cluster';
import type { Explanation, Job, JobEvent, JobSpec, Page, Worker } from './job';
import type { LogLine } from './logs';
import type { DryRun, Plan } from './plan';
import { asProblem, Problem, problemFrom } from './problem';
import type { SeriesAnswer } from './series';
import type { Session } from './session';

export type Query = Record<string, string | number | null | undefined>;

export function address(path: string, query: Query = {}): string {
  const url = new URL(path, document.baseURI);
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== '') url.searchParams.set(name, String(value));
  }
  return url.href;
}

export async function request<T>(method: string, path: string, query: Query = {}, body?: unknown, headers: Record<string, string> = {}): Promise<T> {
  const init: RequestInit = { method, headers: { accept: 'application/json', ...headers }, credentials: 'same-origin' };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { ...init.headers, 'content-type': 'application/json' };
  }
  const response = await fetch(address(path, query), init).catch((error: unknown) => {
    throw asProblem(error);
  });
  if (!response.ok) throw await problemFrom(response);
  if (response.status === 204) return undefined as T;
  return (await response.json().catch(() => {
    throw new Problem(response.status, 'The answer is not JSON', `${method} ${path}`);
  })) as T;
}

const get = <T>(path: string, query: Query = {}): Promise<T> => request<T>('GET', path, query);
const at = (id: string, rest = ''): string => `v1/jobs/${encodeURIComponent(id)}${rest}`;

export const listJobs = (query: { state?: string; name?: string; limit?: number; cursor?: string | null }): Promise<Page<Job>> =>
  get('v1/jobs', query);
export const getJob = (id: string): Promise<Job> => get(at(id));
export const getEvents = (id: string, after?: string | number | null): Promise<{ items: JobEvent[]; next_after: string | number | null }> =>
  get(at(id, '/events'), { after });
export const getWorkers = (id: string): Promise<{ items: Worker[] }> => get(at(id, '/workers'));
export const getMetrics = (
  id: string,
  query: { names: string; points: number; from_step?: number | undefined; to_step?: number | undefined },
): Promise<{ series: SeriesAnswer[] }> => get(at(id, '/metrics'), query);

export const scaleJob = (id: string, workers: number | { min: number; max: number }): Promise<unknown> =>
  request('POST', at(id, '/scale'), {}, { workers });
export type Verb = 'pause' | 'resume' | 'cancel';
export const actOnJob = (id: string, verb: Verb): Promise<unknown> => request('POST', at(id, `/${verb}`));
export const deleteJob = (id: string): Promise<void> => request('DELETE', at(id));

/** 128 random bits; `crypto.randomUUID` is there over https and on loopback alone. */
export const newKey = (): string => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');

/** The key makes a repeated click, or a repeat after a lost answer, the same job. */
export const submitJob = (spec: JobSpec, key: string): Promise<Job> => request('POST', 'v1/jobs', {}, spec, { 'Idempotency-Key': key });
export const makePlan = (spec: JobSpec): Promise<Plan> => request('POST', 'v1/plan', {}, spec);
export const dryRun = (spec: JobSpec): Promise<DryRun> => request('POST', 'v1/jobs', { dry_run: 'true' }, spec);

export const getCluster = (): Promise<Cluster> => get('v1/cluster');
export const getCheckpoints = (id: string): Promise<{ items: Checkpoint[] }> => get(at(id, '/checkpoints'));
export const takeCheckpoint = (id: string): Promise<unknown> => request('POST', at(id, '/checkpoints'));
export const verifyCheckpoint = (id: string, step: number): Promise<Verified> => request('POST', at(id, `/checkpoints/${step}/verify`));
export const pinCheckpoint = (id: string, step: number, pinned: boolean): Promise<Checkpoint> =>
  request('POST', at(id, `/checkpoints/${step}/${pinned ? 'pin' : 'unpin'}`));
export const deleteCheckpoint = (id: string, step: number): Promise<void> => request('DELETE', at(id, `/checkpoints/${step}`));
export const explainJob = (id: string): Promise<Explanation> => get(at(id, '/explain'));
export const getLogs = (
  id: string,
  query: { after: number; limit: number; rank?: number | null },
): Promise<{ items: LogLine[]; next_after: number }> => get(at(id, '/logs'), query);
export const getOpenApi = (): Promise<{ components: { schemas: Record<string, unknown> } }> => get('openapi.json');

export const getSession = (): Promise<Session> => get('v1/session');
export const signIn = (key: string): Promise<Session> => request('POST', 'v1/session', {}, { key });
export const signOut = (): Promise<void> => request('DELETE', 'v1/session');

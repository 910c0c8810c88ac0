/** What there is to run on, who holds it and who waits. */

import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { ranksOn } from '../../domain/buddies';
import { bytes, text } from '../../domain/format';
import type { JobChange } from '../../domain/jobchange';
import { jobHash } from '../../domain/route';
import { Fault, Loading } from '../../part/views';
import { Table, type Column } from '../../part/table';
import { follow } from '../../store/feed';
import type { Cluster } from '../../wire/cluster';
import { titleOf } from '../../wire/job';
import { asProblem, type Problem } from '../../wire/problem';
import { getCluster } from '../../wire/rest';
import { Members } from './members';

const AGAIN_MS = 5_000;
/** Changes that come together, as of many jobs at once, are one question. */
const SOON_MS = 500;

/** The cluster, asked again when a job's state or size changes, and from time to time. */
function useCluster(): { found: Cluster | null; problem: Problem | null; load: () => Promise<void> } {
  const cluster = useSignal<Cluster | null>(null);
  const problem = useSignal<Problem | null>(null);
  const load = async (): Promise<void> => {
    try {
      cluster.value = await getCluster();
      problem.value = null;
    } catch (error) {
      problem.value = asProblem(error);
    }
  };
  useEffect(() => {
    const nothing = (): void => undefined;
    let asked: ReturnType<typeof setTimeout> | undefined;
    const soon = (): void => {
      asked ??= setTimeout(() => ((asked = undefined), void load()), SOON_MS);
    };
    const shapes = new Map<string, string>();
    const onJob = ({ id, state, workers }: JobChange): void => {
      const shape = JSON.stringify([state, workers]);
      // Each step is told; the slots change with the state and the workers alone.
      if (shapes.get(id) !== shape) soon();
      shapes.set(id, shape);
    };
    const stop = follow(null, { refetch: () => void load(), job: onJob, event: nothing, samples: nothing });
    const timer = setInterval(() => document.hidden || void load(), AGAIN_MS);
    return () => {
      clearTimeout(asked);
      clearInterval(timer);
      stop();
    };
  }, []);
  return { found: cluster.value, problem: problem.value, load };
}

export function ClusterPage() {
  const { found, problem, load } = useCluster();
  useEffect(() => {
    document.title = 'Cluster · Elastane';
  }, []);
  if (!found) return problem ? <Fault problem={problem} retry={() => void load()} /> : <Loading what="the cluster" />;
  return (
    <section class="cluster" aria-labelledby="cluster-title">
      <div class="page-head">
        <h1 id="cluster-title">Cluster</h1>
        <dl class="summary">
          <Count of={`${found.slot_kind} slots`} is={found.slots} />
          <Count of="free" is={found.slots_free} />
          <Count of="may be added" is={Math.max(0, found.max_slots - found.slots)} />
        </dl>
      </div>
      <Slots cluster={found} />
      <Waiting cluster={found} />
      <Members uses={found.used} />
      <Nodes cluster={found} />
      <Quotas cluster={found} />
    </section>
  );
}

const Count = ({ of, is }: { of: string; is: number }) => (
  <div>
    <dt>{of}</dt>
    <dd>{is}</dd>
  </div>
);

const MOST_DRAWN = 512;

/** One square per slot: held, free, or not there yet. */
function Slots({ cluster }: { cluster: Cluster }) {
  const held = cluster.used.flatMap((use, i) => Array.from({ length: use.slots }, () => ({ kind: `held-${i % 5}`, name: nameOf(use) })));
  const free = Array.from({ length: cluster.slots_free }, () => ({ kind: 'free', name: 'free' }));
  const more = Array.from({ length: Math.max(0, cluster.max_slots - cluster.slots) }, () => ({ kind: 'more', name: 'the autoscaler may add it' }));
  const squares = [...held, ...free, ...more].slice(0, MOST_DRAWN);
  return (
    <section class="panel" aria-labelledby="slots-title">
      <h2 id="slots-title">Slots</h2>
      <div class="slots" role="img" aria-label={`${held.length} slots held, ${cluster.slots_free} free, ${more.length} may be added`}>
        {squares.map((square, i) => (
          <i key={i} class={square.kind} title={square.name} />
        ))}
      </div>
      <ul class="holders">
        {cluster.used.map((use, i) => (
          <li key={use.job_id}>
            <i class={`held-${i % 5}`} aria-hidden="true" />
            <a href={jobHash(use.job_id)}>{nameOf(use)}</a>
            <small>
              {use.slots} slot{use.slots === 1 ? '' : 's'}, {use.workers} worker{use.workers === 1 ? '' : 's'}
            </small>
          </li>
        ))}
        {cluster.used.length === 0 && <li class="hint">Nobody holds a slot.</li>}
      </ul>
    </section>
  );
}

const nameOf = (use: { job_id: string; name: string | null }): string => titleOf({ id: use.job_id, name: use.name });

function Waiting({ cluster }: { cluster: Cluster }) {
  return (
    <section class="panel" aria-labelledby="waiting-title">
      <h2 id="waiting-title">Waiting</h2>
      {cluster.pending.length === 0 && <p class="hint">Nobody waits.</p>}
      <ul class="pending">
        {cluster.pending.map((job) => (
          <li key={job.job_id}>
            <a href={jobHash(job.job_id)}>{nameOf(job)}</a>
            <small>needs {job.slots}</small>
            <span>{job.reason}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** What the jobs of a key hold together, of what they may. */
function Quotas({ cluster }: { cluster: Cluster }) {
  if (!cluster.quotas.length) return null;
  return (
    <section class="panel" aria-labelledby="quotas-title">
      <h2 id="quotas-title">Quotas</h2>
      <ul class="holders">
        {cluster.quotas.map((quota) => (
          <li key={quota.key_id}>
            {quota.name}
            <small>
              {quota.slots} of {quota.quota_slots} slots held
            </small>
          </li>
        ))}
      </ul>
    </section>
  );
}

const NODE_COLUMNS: readonly Column[] = ['Address', 'State', { num: 'Slots' }, 'Ranks here', { num: 'Memory' }, 'Accelerator', 'Id'];

function Nodes({ cluster }: { cluster: Cluster }) {
  const uses = cluster.used.map((use) => ({ name: nameOf(use), members: use.members }));
  return (
    <section class="panel" aria-labelledby="nodes-title">
      <h2 id="nodes-title">Nodes</h2>
      <Table label="Nodes, by address" columns={NODE_COLUMNS}>
        {cluster.nodes.map((node) => (
          <tr key={node.id}>
            <td>{node.address}</td>
            <td>
              <span class={`badge ${node.alive ? 'state-running' : 'state-lost'}`}>
                <i aria-hidden="true" />
                {node.alive ? 'alive' : 'gone'}
              </span>
            </td>
            <td class="num">{node.slots}</td>
            <td>{ranksOn(node.address, uses).join('; ') || '–'}</td>
            <td class="num">{text(bytes(node.memory_bytes))}</td>
            <td>
              {node.accelerator ?? '–'}
              {node.accelerator_memory_bytes !== null && <small> {text(bytes(node.accelerator_memory_bytes))} each</small>}
            </td>
            <td>
              <code>{node.id.slice(0, 12)}</code>
            </td>
          </tr>
        ))}
      </Table>
    </section>
  );
}

/** Why the job waits, or has not more workers: the service's own sentences, asked again while that may change. */

import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { jobHash } from '../../domain/route';
import { Table, type Column } from '../../part/table';
import { isEnded, titleOf, type Explanation, type Job } from '../../wire/job';
import { explainJob } from '../../wire/rest';

const AGAIN_MS = 4_000;

const waits = (job: Job): boolean => job.state === 'queued' || job.state === 'starting' || job.state === 'recovering';

export function WhyPanel({ job }: { job: Job }) {
  const found = useSignal<Explanation | null>(null);
  const short = !isEnded(job.state) && (waits(job) || job.workers.actual < job.workers.max);
  useEffect(() => {
    if (!short) return;
    // What the cluster cannot say now it may say later; the reason of the job is there without it.
    const ask = (): void => void explainJob(job.id).then((answer) => (found.value = answer), () => undefined);
    ask();
    const timer = setInterval(() => document.hidden || ask(), AGAIN_MS);
    return () => clearInterval(timer);
  }, [job.id, job.state, job.workers.desired, short]);
  const { value: why } = found;
  if (!short || !why) return null;
  return (
    <details class="panel why" open={waits(job)}>
      <summary>
        <h2>{waits(job) ? 'Why it waits' : 'Why it has not more workers'}</h2>
      </summary>
      <ul>
        {why.sentences.map((sentence) => (
          <li key={sentence}>{sentence}</li>
        ))}
      </ul>
      {why.ahead.length > 0 && <Ahead why={why} />}
    </details>
  );
}

const COLUMNS: readonly Column[] = ['Ahead of it', { num: 'Priority' }, { num: 'Slots held' }];

function Ahead({ why }: { why: Explanation }) {
  return (
    <Table label="Jobs ahead of it" columns={COLUMNS}>
      {why.ahead.map((one) => (
        <tr key={one.job_id}>
          <td>
            <a href={jobHash(one.job_id)}>{titleOf({ id: one.job_id, name: one.name })}</a>
          </td>
          <td class="num">{one.priority}</td>
          <td class="num">{one.slots}</td>
        </tr>
      ))}
    </Table>
  );
}

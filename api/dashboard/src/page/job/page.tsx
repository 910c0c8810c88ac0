/** One job: what it does now, its curves, its memory, what happened, who works, and what one can do about it. */

import { useEffect, useMemo } from 'preact/hooks';
import { hashOf, jobHash } from '../../domain/route';
import { Fault, Loading } from '../../part/views';
import { JobView } from '../../store/jobview';
import { place } from '../../store/place';
import { titleOf } from '../../wire/job';
import { Charts } from './charts';
import { CheckpointsPanel } from './checkpoints';
import { GenerationsPanel } from './generations';
import { JobHead } from './head';
import { LogsPanel } from './logs';
import { SpecPanel } from './spec';
import { Stats } from './stats';
import { Timeline } from './timeline';
import { WhyPanel } from './why';
import { WorkersPanel } from './workers';

const TABS = [
  ['', 'Overview'],
  ['timeline', 'Timeline'],
  ['workers', 'Workers'],
  ['checkpoints', 'Checkpoints'],
  ['logs', 'Logs'],
  ['spec', 'Spec'],
] as const;

export function JobPage({ id }: { id: string }) {
  const view = useMemo(() => new JobView(id), [id]);
  useEffect(() => view.start(), [view]);
  const job = view.job.value;
  const problem = view.problem.value;
  useEffect(() => {
    document.title = `${job ? `${titleOf(job)} · ${job.state}` : 'Job'} · Elastane`;
  }, [job?.name, job?.state]);
  if (!job) {
    return (
      <section class="job">
        <p class="crumbs">
          <a href={hashOf({ page: 'jobs' })}>Jobs</a>
        </p>
        {problem ? <Fault problem={problem} retry={() => void view.refetch()} /> : <Loading what="the job" />}
      </section>
    );
  }
  return (
    <section class="job" aria-labelledby="job-title">
      <JobHead job={job} view={view} />
      <Stats job={job} view={view} />
      <WhyPanel job={job} />
      <Tabs id={id} events={view.events.value.length} workers={view.workers.value.length} />
      <Tab view={view} />
    </section>
  );
}

function Tabs({ id, events, workers }: { id: string; events: number; workers: number }) {
  const { query } = place.value;
  const counts: Record<string, number> = { timeline: events, workers };
  return (
    <nav class="tabs" aria-label="Parts of the job">
      {TABS.map(([tab, name]) => (
        <a key={tab} href={jobHash(id, { ...query, tab })} aria-current={(query['tab'] ?? '') === tab ? 'page' : undefined}>
          {name}
          {counts[tab] !== undefined && <small> {counts[tab]}</small>}
        </a>
      ))}
    </nav>
  );
}

function Tab({ view }: { view: JobView }) {
  const job = view.job.value;
  if (!job) return null;
  switch (place.value.query['tab'] ?? '') {
    case 'timeline':
      return <Timeline view={view} />;
    case 'workers':
      return (
        <div class="stack">
          <WorkersPanel view={view} />
          <GenerationsPanel view={view} />
        </div>
      );
    case 'checkpoints':
      return <CheckpointsPanel view={view} />;
    case 'logs':
      return <LogsPanel view={view} />;
    case 'spec':
      return <SpecPanel job={job} />;
    default:
      return (
        <>
          <Charts view={view} />
          <div class="split">
            <Timeline view={view} newest={12} />
            <div class="stack">
              <GenerationsPanel view={view} />
              <WorkersPanel view={view} />
            </div>
          </div>
        </>
      );
  }
}

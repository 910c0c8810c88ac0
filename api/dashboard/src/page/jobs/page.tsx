/** All jobs: what runs, how far it is, what it holds, why it waits. */

import { useSignalEffect } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import { hashOf } from '../../domain/route';
import { Empty, Fault, Loading } from '../../part/views';
import { JobList } from '../../store/joblist';
import { place } from '../../store/place';
import { BulkBar } from './bulk';
import { FilterBar, filterOf } from './filter';
import { Summary } from './summary';
import { JobTable } from './table';

export function JobsPage() {
  const list = useMemo(() => new JobList(), []);
  useEffect(() => list.start(), [list]);
  useSignalEffect(() => {
    document.title = 'Jobs · Elastane';
    if (place.value.route.page === 'jobs') list.setFilter(filterOf(place.value.query));
  });
  return (
    <section class="jobs" aria-labelledby="jobs-title">
      <div class="page-head">
        <h1 id="jobs-title">Jobs</h1>
        <Summary list={list} />
      </div>
      <FilterBar />
      <BulkBar list={list} />
      <Body list={list} />
    </section>
  );
}

function Body({ list }: { list: JobList }) {
  const problem = list.problem.value;
  if (problem && !list.loaded.value) return <Fault problem={problem} retry={() => void list.refetch()} />;
  if (!list.loaded.value) return <Loading what="jobs" />;
  if (list.jobs.value.length === 0 && list.loadingMore.value) return <Loading what="older jobs" />;
  if (list.jobs.value.length === 0) return <NoJobs filtered={list.all.value.length > 0 || Object.keys(place.value.query).length > 0} />;
  return <JobTable list={list} />;
}

function NoJobs({ filtered }: { filtered: boolean }) {
  if (filtered) {
    return (
      <Empty title="No job matches">
        <p>
          Change the search or the states, or <a href={hashOf({ page: 'jobs' })}>show all jobs</a>.
        </p>
      </Empty>
    );
  }
  return (
    <Empty title="No job yet">
      <p>The shortest job there is:</p>
      <pre>
        <code>elastane submit examples/smallest.yaml --follow</code>
      </pre>
      <p>
        or <a href={hashOf({ page: 'submit' })}>write one here</a>.
      </p>
    </Empty>
  );
}

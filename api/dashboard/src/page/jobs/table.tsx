/** The list itself. Only the rows in view exist, so ten thousand jobs scroll like ten. */

import { useSignal } from '@preact/signals';
import type { RefObject } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { rowWindow } from '../../domain/rows';
import type { JobList } from '../../store/joblist';
import { JobRow } from './row';
import { chosen, chooseAll } from './selection';

const ROW_PX = 58;
const PHONE_ROW_PX = 132;
const SPARE_ROWS = 8;
const phone = matchMedia('(max-width: 760px)');

const COLUMNS = ['Job', 'State', 'Progress', 'Workers', 'Tokens/s', 'Loss', 'Memory of capacity', 'Prio', 'Created'] as const;

/** What of the list is scrolled past, in whole rows, and how much of it a window holds. */
function useScrolled(body: RefObject<HTMLDivElement | null>) {
  const view = useSignal({ top: 0, height: innerHeight, row: phone.matches ? PHONE_ROW_PX : ROW_PX });
  useEffect(() => {
    const measure = (): void => {
      const row = phone.matches ? PHONE_ROW_PX : ROW_PX;
      const passed = Math.max(0, -(body.current?.getBoundingClientRect().top ?? 0));
      // Whole rows, so that scrolling within one changes nothing.
      const next = { top: Math.floor(passed / row) * row, height: innerHeight, row };
      const last = view.peek();
      if (next.top !== last.top || next.height !== last.height || next.row !== last.row) view.value = next;
    };
    measure();
    addEventListener('scroll', measure, { passive: true });
    addEventListener('resize', measure);
    return () => {
      removeEventListener('scroll', measure);
      removeEventListener('resize', measure);
    };
  }, []);
  return view.value;
}

export function JobTable({ list }: { list: JobList }) {
  const body = useRef<HTMLDivElement>(null);
  const scrolled = useScrolled(body);
  const jobs = list.jobs.value;
  const rows = rowWindow({ ...scrolled, count: jobs.length, spare: SPARE_ROWS });
  useEffect(() => {
    if (rows.end >= jobs.length - SPARE_ROWS) void list.more();
  }, [rows.end, jobs.length]);

  return (
    <div class="table-frame">
      <div role="table" aria-label="Jobs" aria-rowcount={jobs.length + 1}>
        <div class="tr head" role="row" aria-rowindex={1}>
          <div role="columnheader" class="c-pick">
            <input
              type="checkbox"
              aria-label="Choose all jobs listed"
              checked={jobs.length > 0 && jobs.every((job) => chosen.value.has(job.id))}
              onChange={(event) => chooseAll(event.currentTarget.checked ? jobs.map((job) => job.id) : [])}
            />
          </div>
          {COLUMNS.map((name) => (
            <div key={name} role="columnheader" class={`c-${name.split(/[ /]/)[0]?.toLowerCase()}`}>
              {name}
            </div>
          ))}
        </div>
        <div ref={body} role="rowgroup" style={{ paddingTop: `${rows.above_px}px`, paddingBottom: `${rows.below_px}px` }}>
          {jobs.slice(rows.first, rows.end).map((job, i) => (
            <JobRow key={job.id} job={job} index={rows.first + i + 2} curve={list.sparks.of(job.id)} capacity={list.capacity} />
          ))}
        </div>
      </div>
      <p class="table-foot" role="status">
        {list.loadingMore.value ? 'Loading more…' : `${jobs.length} ${list.hasMore.value ? 'shown, older ones load as you scroll' : 'in all'}`}
      </p>
    </div>
  );
}

/** Lines of workers and controller, newest at the end, followed while the job runs. */

import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { clockTime, utc } from '../../domain/format';
import { place, setQuery } from '../../store/place';
import type { JobView } from '../../store/jobview';
import { isEnded } from '../../wire/job';
import type { LogLine } from '../../wire/logs';
import { asProblem, type Problem } from '../../wire/problem';
import { getLogs } from '../../wire/rest';

const PAGE = 1000;
/** A page of the browser holds so many; older lines are in the API and `elastane logs`. */
const KEPT = 5000;
const AGAIN_MS = 1500;

/** Lines of a rank, or of everybody, read again until the job ends. */
function useLines(view: JobView, rank: string): { lines: readonly LogLine[]; problem: Problem | null } {
  const lines = useSignal<readonly LogLine[]>([]);
  const problem = useSignal<Problem | null>(null);
  useEffect(() => {
    let after = 0;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let over = false;
    lines.value = [];
    const read = async (): Promise<void> => {
      try {
        const answer = await getLogs(view.id, { after, limit: PAGE, rank: rank === '' ? null : Number(rank) });
        if (over) return;
        after = answer.next_after;
        if (answer.items.length) lines.value = [...lines.value, ...answer.items].slice(-KEPT);
        problem.value = null;
        if (answer.items.length === PAGE) return void read();
      } catch (error) {
        problem.value = asProblem(error);
      }
      const ended = view.job.value && isEnded(view.job.value.state);
      if (!over && !ended) timer = setTimeout(() => void read(), AGAIN_MS);
    };
    void read();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [view, rank]);
  return { lines: lines.value, problem: problem.value };
}

export function LogsPanel({ view }: { view: JobView }) {
  const following = useSignal(true);
  const { query } = place.value;
  const rank = query['log'] ?? '';
  const search = query['find'] ?? '';
  const { lines, problem } = useLines(view, rank);
  const shown = search ? lines.filter((line) => line.text.toLowerCase().includes(search.toLowerCase())) : lines;
  const ranks = [...new Set([...view.workers.value.map((w) => w.rank), ...view.ranksOf('mem_params_bytes')])].sort((a, b) => a - b);
  return (
    <section class="panel" aria-labelledby="logs-title">
      <div class="panel-head">
        <h2 id="logs-title">Logs</h2>
        <span class="actions">
          <select aria-label="Whose lines" value={rank} onChange={(e) => setQuery({ log: e.currentTarget.value || null })}>
            <option value="">all</option>
            {ranks.map((r) => (
              <option key={r} value={String(r)}>
                rank {r}
              </option>
            ))}
          </select>
          <input type="search" aria-label="Search in lines" placeholder="Search in lines" value={search} onInput={(e) => setQuery({ find: e.currentTarget.value || null })} />
          <label class="inline-field">
            <input type="checkbox" checked={following.value} onChange={(e) => (following.value = e.currentTarget.checked)} /> follow
          </label>
        </span>
      </div>
      {problem && <p class="fault-text">{problem.message}</p>}
      <Lines lines={shown} follow={following.value} />
      <p class="hint">
        {shown.length} line{shown.length === 1 ? '' : 's'}
        {search && ` of ${lines.length}`}
      </p>
    </section>
  );
}

function Lines({ lines, follow }: { lines: readonly LogLine[]; follow: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines, follow]);
  return (
    <div class="log" ref={box} tabIndex={0} role="log" aria-label="Log lines">
      {lines.map((line) => (
        <p key={line.id} class={`level-${line.level}`}>
          <time title={utc(line.at)}>{clockTime(line.at)}</time>
          <span class="who">{line.rank === null ? 'controller' : `rank ${line.rank}`}</span>
          <span>{line.text}</span>
        </p>
      ))}
    </div>
  );
}

/** What each rank holds now, by kind, against what the planner said. */

import { bytes, text } from '../../domain/format';
import { KIND_LABEL, MEMORY_KINDS } from '../../domain/memory';
import { MemoryBar } from '../../part/memorybar';
import type { JobView } from '../../store/jobview';

export function MemoryPanel({ view }: { view: JobView }) {
  void view.version.value;
  const stacks = view.memory();
  const scale = Math.max(1, ...stacks.map((s) => Math.max(s.total, s.predicted ?? 0))) * 1.02;
  return (
    <section class="panel ranks" tabIndex={0} aria-labelledby="memory-title">
      <h2 id="memory-title">Memory per rank</h2>
      {stacks.length === 0 && <p class="hint">Reported with the first step.</p>}
      <ul class="rank-bars">
        {stacks.map((stack) => (
          <li key={stack.rank} data-rank={stack.rank}>
            <span class="rank">rank {stack.rank}</span>
            <MemoryBar stack={stack} scale={scale} />
            <span class="num">
              <b>{text(bytes(stack.total))}</b>
              {stack.predicted !== null && <small> predicted {text(bytes(stack.predicted))}</small>}
              {stack.process !== null && <small> process {text(bytes(stack.process))}</small>}
            </span>
          </li>
        ))}
      </ul>
      <ul class="legend">
        {MEMORY_KINDS.map((kind) => (
          <li key={kind}>
            <i class={`kind-${kind}`} /> {KIND_LABEL[kind]}
          </li>
        ))}
        <li>
          <i class="predicted-key" /> predicted
        </li>
      </ul>
    </section>
  );
}

/** What each rank holds now, by kind and by the tier it rests on, against what the planner said and what a worker has. */

import { bytes, text } from '../../domain/format';
import { KIND_LABEL, MEMORY_KINDS, type RankStack } from '../../domain/memory';
import { placedOf, slabsOf, sum, TIER_LABEL, type ByKind, type Tier } from '../../domain/tiers';
import { MemoryBar } from '../../part/memorybar';
import type { JobView } from '../../store/jobview';

export function MemoryPanel({ view }: { view: JobView }) {
  void view.version.value;
  const stacks = view.memory();
  const tiers = view.tiers();
  const scale = Math.max(1, ...stacks.map((s) => Math.max(s.total, s.predicted ?? 0))) * 1.02;
  const capacity = view.capacity.value;
  return (
    <section class="panel ranks" tabIndex={0} aria-labelledby="memory-title">
      <h2 id="memory-title">
        Memory per rank {capacity !== null && <small>of {text(bytes(capacity))} that a worker has</small>}
      </h2>
      {stacks.length === 0 && <p class="hint">Reported with the first step.</p>}
      <ul class="rank-bars">
        {stacks.map((stack) => (
          <Rank key={stack.rank} stack={stack} tiers={tiers} placed={placedOf(stack, view.resting.value)} scale={scale} />
        ))}
      </ul>
      <ul class="legend">
        {MEMORY_KINDS.map((kind) => (
          <li key={kind}>
            <i class={`kind-${kind}`} /> {KIND_LABEL[kind]}
          </li>
        ))}
        {tiers.length > 1 && (
          <li>
            <i class="kind-staging" /> passing through
          </li>
        )}
        <li>
          <i class="predicted-key" /> predicted
        </li>
      </ul>
    </section>
  );
}

function Rank({ stack, tiers, placed, scale }: { stack: RankStack; tiers: readonly Tier[]; placed: Record<Tier, ByKind>; scale: number }) {
  return (
    <li data-rank={stack.rank}>
      <span class="rank">rank {stack.rank}</span>
      {tiers.length === 1 && <MemoryBar stack={stack} scale={scale} />}
      <span class="num">
        <b>{text(bytes(stack.total))}</b>
        {stack.predicted !== null && <small> predicted {text(bytes(stack.predicted))}</small>}
        {stack.process !== null && <small> process {text(bytes(stack.process))}</small>}
      </span>
      {tiers.length > 1 &&
        tiers.map((tier) => (
          <span key={tier} class="tier" data-tier={tier}>
            <small>{tier}</small>
            <MemoryBar stack={{ rank: stack.rank, predicted: null, parts: slabsOf([placed[tier]]) }} scale={scale} where={TIER_LABEL[tier]} thin />
            <small>{text(bytes(sum(placed[tier])))}</small>
          </span>
        ))}
    </li>
  );
}

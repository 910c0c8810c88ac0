/** One rank's memory as a stacked bar, the prediction as a dashed line across it. */

import { bytes, text } from '../domain/format';
import { TIER_KIND_LABEL, type Slab } from '../domain/tiers';

export interface BarStack {
  rank: number;
  parts: readonly Slab[];
  predicted: number | null;
}

export function MemoryBar({ stack, scale, where = '', thin = false }: { stack: BarStack; scale: number; where?: string; thin?: boolean }) {
  const share = (size: number): string => `${((100 * size) / (scale || 1)).toFixed(2)}%`;
  const spoken = stack.parts.map((p) => `${TIER_KIND_LABEL[p.kind]} ${text(bytes(p.bytes))}`).join(', ');
  const predicted = stack.predicted === null ? '' : `; predicted ${text(bytes(stack.predicted))}`;
  return (
    <div class={thin ? 'membar thin' : 'membar'} role="img" aria-label={`rank ${stack.rank} ${where}: ${spoken}${predicted}`} title={spoken + predicted}>
      {stack.parts.map((part) => (
        <i key={part.kind} class={`kind-${part.kind}`} style={{ width: share(part.bytes) }} />
      ))}
      {stack.predicted !== null && <b style={{ left: share(stack.predicted) }} />}
    </div>
  );
}

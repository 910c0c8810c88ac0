/** A small curve without axes for a cell of a table. */

import { sparkPath } from '../domain/spark';
import type { Series } from '../domain/series';

const WIDTH = 96;
const HEIGHT = 26;

export function Sparkline({ series, label }: { series: Series; label: string }) {
  const path = sparkPath(series.points, WIDTH, HEIGHT);
  if (!path) return <span class="spark-none" />;
  return (
    <svg class="spark" width={WIDTH} height={HEIGHT} viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={label}>
      <path class="spark-band" d={path.band} />
      <path class="spark-line" d={path.line} />
    </svg>
  );
}

/** Whether what one sees is what is: live, or since when not. */

import { ago } from '../domain/format';
import { feedState, feedStatus, heardAt, QUIET_S, silence_s } from '../store/feed';

export function Freshness() {
  const state = feedState.value;
  if (state === 'closed') return null;
  const live = state === 'live' && silence_s.value < QUIET_S;
  return (
    <span class={live ? 'freshness live' : 'freshness stale'} role="status" data-feed={live ? 'live' : 'stale'}>
      <i aria-hidden="true" />
      {live ? 'live' : words()}
    </span>
  );
}

function words(): string {
  if (feedStatus.value === 401 || feedStatus.value === 403) return 'not permitted';
  if (!heardAt.value) return 'connecting…';
  return `stale · last update ${ago(silence_s.value)}`;
}

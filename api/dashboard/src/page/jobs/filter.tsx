/** Search and states. Both live in the address. */

import { useEffect, useRef } from 'preact/hooks';
import { GROUPS, groupOf, type Group, type JobFilter } from '../../domain/jobfilter';
import type { RouteQuery } from '../../domain/route';
import { JOB_STATES, type JobState } from '../../wire/job';
import { place, setQuery } from '../../store/place';

export function filterOf(query: RouteQuery): JobFilter {
  return { search: query['q'] ?? '', states: statesOf(query['state'] ?? '') };
}

/** `state=active` names a group, `state=running,failed` the states themselves. */
function statesOf(value: string): JobState[] {
  const words = new Set(value.split(',').filter(Boolean));
  return JOB_STATES.filter((state) => words.has(state) || words.has(groupOf(state)));
}

export function FilterBar() {
  const { query } = place.value;
  const field = useRef<HTMLInputElement>(null);
  const chosen = query['state'] ?? '';
  useEffect(() => {
    if (query['focus'] !== 'search') return;
    field.current?.focus();
    setQuery({ focus: null });
  }, [query['focus']]);
  return (
    <div class="filters" role="search">
      <input
        ref={field}
        type="search"
        class="search"
        placeholder="Search name, id, model, reason   /"
        aria-label="Search jobs"
        value={query['q'] ?? ''}
        onInput={(event) => setQuery({ q: event.currentTarget.value })}
      />
      <div class="segments" role="group" aria-label="States">
        {GROUPS.map((group) => (
          <button key={group} type="button" aria-pressed={isChosen(group, chosen)} onClick={() => setQuery({ state: group === 'all' ? null : group })}>
            {group}
          </button>
        ))}
      </div>
      <OneState chosen={chosen} />
    </div>
  );
}

function OneState({ chosen }: { chosen: string }) {
  return (
    <label class="inline-field">
      <span class="hidden">One state</span>
      <select value={JOB_STATES.find((state) => state === chosen) ?? ''} onChange={(event) => setQuery({ state: event.currentTarget.value || null })}>
        <option value="">any state</option>
        {JOB_STATES.map((state) => (
          <option key={state} value={state}>
            {state}
          </option>
        ))}
      </select>
    </label>
  );
}

const isChosen = (group: Group, chosen: string): boolean => (group === 'all' ? chosen === '' : chosen === group);

/** The frame of every page: where one can go, whether what one sees is live, and the page itself. */

import { useEffect } from 'preact/hooks';
import { hashOf, type Route } from './domain/route';
import { ClusterPage } from './page/cluster/page';
import { ComparePage } from './page/compare/page';
import { JobPage } from './page/job/page';
import { JobsPage } from './page/jobs/page';
import { SpecPage } from './page/spec/page';
import { Freshness } from './part/freshness';
import { Help } from './part/help';
import { helpOpen } from './part/keyboard';
import { Notices } from './part/notices';
import { SignOut } from './part/signin';
import { Empty } from './part/views';
import { place } from './store/place';
import { denied } from './store/session';
import { isDark, theme, themeVersion, toggleTheme } from './store/theme';

const LINKS = [
  ['jobs', 'Jobs'],
  ['plan', 'Plan'],
  ['cluster', 'Cluster'],
  ['compare', 'Compare'],
] as const;

export function App() {
  const { route } = place.value;
  useEffect(() => {
    window.scrollTo(0, 0);
  }, [route.page, 'id' in route ? route.id : '']);
  return (
    <>
      <a class="skip" href="#main" onClick={focusMain}>
        To the content
      </a>
      <Top route={route} />
      <main id="main" tabIndex={-1}>
        <Content route={route} />
      </main>
      <Notices />
      <Help />
    </>
  );
}

function Top({ route }: { route: Route }) {
  return (
    <header class="top">
      <a class="brand" href={hashOf({ page: 'jobs' })} aria-label="Elastane, all jobs">
        <Mark />
        <span>Elastane</span>
      </a>
      <nav aria-label="Pages">
        {LINKS.map(([page, name]) => (
          <a key={page} href={hashOf({ page })} aria-current={isAt(route, page) ? 'page' : undefined}>
            {name}
          </a>
        ))}
      </nav>
      <div class="top-right">
        <Freshness />
        <SignOut />
        <ThemeButton />
        <button type="button" class="icon" aria-label="Keys" title="Keys (?)" onClick={() => (helpOpen.value = true)}>
          ?
        </button>
        {denied('submit') === null && (
          <a class="button primary" href={hashOf({ page: 'submit' })}>
            New job
          </a>
        )}
      </div>
    </header>
  );
}

const isAt = (route: Route, page: string): boolean => route.page === page || (route.page === 'job' && page === 'jobs');

function focusMain(event: Event): void {
  event.preventDefault();
  document.getElementById('main')?.focus();
}

function Content({ route }: { route: Route }) {
  switch (route.page) {
    case 'jobs':
      return <JobsPage />;
    case 'job':
      return <JobPage key={route.id} id={route.id} />;
    case 'submit':
      return <SpecPage key="submit" planning={false} />;
    case 'plan':
      return <SpecPage key="plan" planning />;
    case 'cluster':
      return <ClusterPage />;
    case 'compare':
      return <ComparePage />;
    default:
      return (
        <Empty title="No such page" alone>
          <p>
            There is nothing at <code>{route.path}</code>. <a href={hashOf({ page: 'jobs' })}>All jobs</a>
          </p>
        </Empty>
      );
  }
}

function ThemeButton() {
  void [theme.value, themeVersion.value];
  const to = isDark() ? 'light' : 'dark';
  return (
    <button type="button" class="icon" aria-label={`Change to ${to}`} title={`Change to ${to} (t)`} onClick={toggleTheme}>
      <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
        <circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" stroke-width="1.5" />
        <path d="M8 2a6 6 0 0 1 0 12z" fill="currentColor" />
      </svg>
    </button>
  );
}

/** Three fibres, the middle one at rest, the others stretched. */
function Mark() {
  return (
    <svg viewBox="0 0 32 32" width="24" height="24" aria-hidden="true">
      <rect width="32" height="32" rx="8" fill="var(--accent-fill)" />
      <g fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round">
        <path d="M7 10c4.500 0 4.500 3 9 3s4.500-3 9-3" />
        <path d="M7 16h18" />
        <path d="M7 22c4.500 0 4.500-3 9-3s4.500 3 9 3" />
      </g>
    </svg>
  );
}

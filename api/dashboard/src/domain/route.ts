/** Addresses of the page. They stand behind `#`, so any static server and any prefix will do, and hold the whole view. */

export type Route =
  | { page: 'jobs' }
  | { page: 'job'; id: string }
  | { page: 'submit' }
  | { page: 'plan' }
  | { page: 'cluster' }
  | { page: 'compare' }
  | { page: 'unknown'; path: string };

export type RouteQuery = Readonly<Record<string, string>>;

export interface Place {
  route: Route;
  query: RouteQuery;
}

export function parsePlace(hash: string): Place {
  const [path = '', search = ''] = hash.replace(/^#/, '').split('?', 2) as [string, string?];
  const query: Record<string, string> = {};
  for (const [name, value] of new URLSearchParams(search)) query[name] = value;
  return { route: parseRoute(path), query };
}

function parseRoute(path: string): Route {
  const parts = path.split('/').filter(Boolean).map(decode);
  const [head, id] = parts;
  if (head === undefined) return { page: 'jobs' };
  if (head === 'jobs' && parts.length === 1) return { page: 'jobs' };
  if (head === 'jobs' && id !== undefined && parts.length === 2) return { page: 'job', id };
  if (parts.length === 1 && (head === 'submit' || head === 'plan' || head === 'cluster' || head === 'compare')) return { page: head };
  return { page: 'unknown', path };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function pathOf(route: Route): string {
  if (route.page === 'job') return `/jobs/${encodeURIComponent(route.id)}`;
  return route.page === 'unknown' ? route.path : `/${route.page}`;
}

/** Empty values are left out, so that the plain view has the plain address. */
export function hashOf(route: Route, query: Readonly<Record<string, string | number | null | undefined>> = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== '') search.set(name, String(value));
  }
  const tail = search.toString();
  return `#${pathOf(route)}${tail ? `?${tail}` : ''}`;
}

export const jobHash = (id: string, query: Readonly<Record<string, string>> = {}): string => hashOf({ page: 'job', id }, query);

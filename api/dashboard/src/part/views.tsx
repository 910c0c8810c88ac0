/** What stands where there is nothing to show: not yet, nothing, not allowed, or not reached. */

import type { ComponentChildren } from 'preact';
import type { Problem } from '../wire/problem';
import { SignIn } from './signin';

export function Loading({ what }: { what: string }) {
  return (
    <div class="blank" role="status">
      <span class="spinner" aria-hidden="true" />
      Loading {what}…
    </div>
  );
}

/** `alone`: the page has no other heading. */
export function Empty({ title, alone = false, children }: { title: string; alone?: boolean; children?: ComponentChildren }) {
  return (
    <div class="blank">
      {alone ? <h1>{title}</h1> : <h2>{title}</h2>}
      {children}
    </div>
  );
}

export function Fault({ problem, retry }: { problem: Problem; retry(): void }) {
  return (
    <div class="blank fault" role="alert">
      <h1>{problem.notPermitted ? 'Not permitted' : problem.title}</h1>
      {problem.status === 401 || problem.status === 403 ? <SignIn done={retry} /> : <p>{hint(problem)}</p>}
      <button type="button" class="button" onClick={retry}>
        Try again
      </button>
    </div>
  );
}

function hint(problem: Problem): string {
  if (problem.unreachable) return 'Is `elastane serve` running? This page goes on by itself when it answers.';
  return problem.detail;
}

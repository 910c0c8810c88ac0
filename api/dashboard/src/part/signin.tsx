/** Asks for a key where the service answered that it wants one. */

import { useSignal } from '@preact/signals';
import { nudge } from '../store/feed';
import { sayProblem } from '../store/notice';
import { enter, leave, session } from '../store/session';
import { asProblem, type Problem } from '../wire/problem';

export function SignIn({ done }: { done(): void }) {
  const typed = useSignal('');
  const problem = useSignal<Problem | null>(null);
  const name = session.value?.name;
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    try {
      await enter(typed.value);
      nudge();
      done();
    } catch (error) {
      problem.value = asProblem(error);
    }
  };
  return (
    <form class="sign-in" onSubmit={(event) => void submit(event)}>
      <p>{words(problem.value, name)}</p>
      <label>
        <span class="hidden">API key</span>
        <input type="password" autocomplete="off" placeholder="ek_…" value={typed.value} onInput={(e) => (typed.value = e.currentTarget.value)} />
      </label>
      <button class="button primary" disabled={!typed.value.trim()}>
        Sign in
      </button>
      <p class="hint">The browser keeps it until it is closed, out of reach of any script. Make one with elastane keys create.</p>
    </form>
  );
}

function words(problem: Problem | null, name: string | null | undefined): string {
  if (problem?.notPermitted) return 'The service does not accept this key.';
  if (problem) return problem.message;
  if (name) return `The key ${name} may not see this. Sign in with another.`;
  return 'This service asks for a key. One with the scope read shows all; submit acts.';
}

export function SignOut() {
  const name = session.value?.name;
  if (!name) return null;
  const go = (): void => {
    leave().then(
      () => location.reload(),
      (error: unknown) => sayProblem('Nobody was signed out', error),
    );
  };
  return (
    <button type="button" class="button quiet" title={`Signed in with the key ${name}`} onClick={go}>
      Sign out
    </button>
  );
}

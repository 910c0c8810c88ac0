/** Asks for a key where the service answered that it wants one. */

import { useSignal } from '@preact/signals';
import { nudge } from '../store/feed';
import { apiKey, useKey } from '../wire/key';

export function SignIn({ done }: { done(): void }) {
  const typed = useSignal('');
  const enter = (event: Event): void => {
    event.preventDefault();
    useKey(typed.value);
    nudge();
    done();
  };
  return (
    <form class="sign-in" onSubmit={enter}>
      <p>{apiKey.value ? 'The service does not accept this key, or it lacks the scope for this.' : 'This service asks for a key. One with the scope read shows all; submit acts.'}</p>
      <label>
        <span class="hidden">API key</span>
        <input type="password" autocomplete="off" placeholder="ek_…" value={typed.value} onInput={(e) => (typed.value = e.currentTarget.value)} />
      </label>
      <button class="button primary" disabled={!typed.value.trim()}>
        Sign in
      </button>
      <p class="hint">It is kept for this tab only. Make one with elastane keys create.</p>
    </form>
  );
}

export function SignOut() {
  if (!apiKey.value) return null;
  const leave = (): void => {
    useKey('');
    location.reload();
  };
  return (
    <button type="button" class="button quiet" onClick={leave}>
      Sign out
    </button>
  );
}

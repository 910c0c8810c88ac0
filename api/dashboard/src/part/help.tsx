/** The list of keys. */

import { useEffect, useRef } from 'preact/hooks';
import { helpOpen, SHORTCUTS } from './keyboard';

export function Help() {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (helpOpen.value) element.current?.showModal();
  }, [helpOpen.value]);
  if (!helpOpen.value) return null;
  return (
    <dialog ref={element} class="dialog" aria-labelledby="help-title" onClose={() => (helpOpen.value = false)}>
      <h2 id="help-title">Keys</h2>
      <dl class="shortcuts">
        {SHORTCUTS.map(([keys, what]) => (
          <div key={keys}>
            <dt>
              {keys.split(' ').map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <form method="dialog" class="dialog-actions">
        <button class="button">Close</button>
      </form>
    </dialog>
  );
}

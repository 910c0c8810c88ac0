/** A question before something happens. The browser's own modal keeps the focus inside and closes on Escape. */

import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

export interface DialogProps {
  title: string;
  /** Without it there is nothing to confirm, only to close. */
  confirm?: string;
  danger?: boolean;
  busy?: boolean;
  disabled?: boolean;
  onConfirm?(): void;
  onClose(): void;
  children: ComponentChildren;
}

export function Dialog(props: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog ref={element} class="dialog" aria-labelledby="dialog-title" onClose={props.onClose}>
      <form
        method="dialog"
        onSubmit={(event) => {
          event.preventDefault();
          props.onConfirm?.();
        }}
      >
        <h2 id="dialog-title">{props.title}</h2>
        {props.children}
        <div class="dialog-actions">
          <button type="button" class="button" onClick={props.onClose}>
            {props.confirm ? 'Keep as it is' : 'Close'}
          </button>
          {props.confirm && (
            <button type="submit" class={props.danger ? 'button danger' : 'button primary'} disabled={props.busy || props.disabled}>
              {props.busy ? 'Asking…' : props.confirm}
            </button>
          )}
        </div>
      </form>
    </dialog>
  );
}

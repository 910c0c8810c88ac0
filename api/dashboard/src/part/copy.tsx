/** A text to take along, and the button that takes it. */

import { say } from '../store/notice';

export function copy(text: string, what: string): void {
  // Browsers have a clipboard for pages over https and on loopback alone.
  const clipboard = navigator.clipboard as Clipboard | undefined;
  const copied = clipboard ? clipboard.writeText(text) : Promise.reject(new Error('no clipboard'));
  copied.then(
    () => say(`${what} copied`),
    () => say('The browser did not allow copying; select the text instead', 'bad'),
  );
}

export function Command({ text, what }: { text: string; what: string }) {
  return (
    <div class="command">
      <pre tabIndex={0} aria-label={what}>
        <code>{text}</code>
      </pre>
      <button type="button" class="button" onClick={() => copy(text, what)}>
        Copy
      </button>
    </div>
  );
}

/** The corner where actions report. */

import { dismiss, notices } from '../store/notice';

export function Notices() {
  return (
    <div class="notices" role="status" aria-live="polite">
      {notices.value.map((notice) => (
        <p key={notice.id} class={`notice ${notice.tone}`}>
          {notice.text}
          <button type="button" aria-label="Dismiss" onClick={() => dismiss(notice.id)}>
            ×
          </button>
        </p>
      ))}
    </div>
  );
}

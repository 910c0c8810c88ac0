/** The spec as JSON, whole: every field the service knows, also those the form does not show. */

import { useSignal, useSignalEffect } from '@preact/signals';
import { parseSpec } from '../../domain/draft';
import type { Planner } from '../../store/planner';

export function SpecText({ planner }: { planner: Planner }) {
  const text = useSignal(JSON.stringify(planner.spec.peek(), null, 2));
  // A spec that comes from elsewhere, as a job that was still being fetched, takes the place of the text.
  useSignalEffect(() => {
    const spec = planner.spec.value;
    if (JSON.stringify(parseSpec(text.peek())) !== JSON.stringify(spec)) text.value = JSON.stringify(spec, null, 2);
  });
  const broken = parseSpec(text.value) === null;
  const change = (value: string): void => {
    text.value = value;
    const spec = parseSpec(value);
    if (spec) planner.change(spec);
  };
  return (
    <label class="spec-text">
      <span class="hidden">Spec as JSON</span>
      <textarea spellcheck={false} rows={26} value={text.value} aria-invalid={broken} onInput={(e) => change(e.currentTarget.value)} />
      {broken && <em class="fault-text">This is not an object in JSON yet; the plan is that of the last one.</em>}
    </label>
  );
}

/** The fields that most jobs set. What may stand in them comes from the service's own schema; all else is written as JSON. */

import { valueAt, withValue } from '../../domain/draft';
import { fieldAt, pathsOf, type SpecField } from '../../domain/schema';
import { Loading } from '../../part/views';
import type { Planner } from '../../store/planner';

const ROOT = 'JobSpecDocument';

interface Group {
  title: string;
  fields: readonly (readonly [path: string, label: string, unit?: string])[];
}

const OWN_SIZE: Group = {
  title: 'Size of the GPT',
  fields: [
    ['model.layers', 'Layers'],
    ['model.width', 'Width'],
    ['model.heads', 'Heads'],
    ['model.vocab', 'Vocabulary'],
    ['model.context', 'Context', 'tokens'],
  ],
};

const GROUPS: readonly Group[] = [
  {
    title: 'Sharding',
    fields: [
      ['engine', 'Engine'],
      ['stage', 'ZeRO stage'],
      ['precision', 'Precision'],
      ['offload', 'Offload'],
    ],
  },
  {
    title: 'Size',
    fields: [
      ['workers.min', 'Workers, at least'],
      ['workers.max', 'Workers, at most'],
      ['priority', 'Priority, 0 to 100'],
    ],
  },
  {
    title: 'Training',
    fields: [
      ['training.steps', 'Steps'],
      ['training.batch_size', 'Global batch', 'sequences'],
      ['training.micro_batch_size', 'Micro-batch', 'sequences'],
      ['training.seq_len', 'Sequence', 'tokens'],
      ['training.optimizer.lr', 'Learning rate'],
      ['training.schedule.warmup_steps', 'Warm-up', 'steps'],
      ['training.seed', 'Seed'],
      ['checkpoint.every_steps', 'Checkpoint every', 'steps'],
      ['training.activation_checkpointing', 'Activation checkpointing'],
    ],
  },
];

export function SpecForm({ planner }: { planner: Planner }) {
  if (!planner.schemas.value) return planner.problem.value?.unreachable ? <p class="hint">The service does not answer.</p> : <Loading what="the fields" />;
  return (
    <form class="spec-form" onSubmit={(event) => event.preventDefault()}>
      <ModelFields planner={planner} />
      {GROUPS.map((group) => (
        <Fields key={group.title} group={group} planner={planner} />
      ))}
      <OtherFields planner={planner} />
    </form>
  );
}

/** Whatever else the service's schema has, under its own name: a new field of the service is here without a change to the page. */
function OtherFields({ planner }: { planner: Planner }) {
  const schemas = planner.schemas.value ?? {};
  const above = new Set(GROUPS.flatMap((group) => group.fields.map(([path]) => path)));
  const paths = pathsOf(ROOT, schemas).filter((path) => !above.has(path));
  return (
    <details class="other-fields">
      <summary>All other fields</summary>
      <Fields group={{ title: 'By the name they have in JSON', fields: paths.map((path) => [path, path] as const) }} planner={planner} />
    </details>
  );
}

function ModelFields({ planner }: { planner: Planner }) {
  const spec = planner.spec.value;
  const field = fieldAt('model', ROOT, planner.schemas.value ?? {});
  const own = typeof spec.model === 'object' && spec.model !== null;
  const isGpt = own && !('hf' in (spec.model as object)) && !('python' in (spec.model as object));
  const choose = (value: string): void =>
    planner.change(withValue(spec, 'model', value === 'gpt' ? { name: 'gpt', layers: 6, width: 384, heads: 6, vocab: 256, context: 256 } : value));
  return (
    <>
      <fieldset>
        <legend>Model</legend>
        <label class="field">
          <span>Model</span>
          <select value={own ? 'gpt' : String(spec.model)} disabled={own && !isGpt} onChange={(e) => choose(e.currentTarget.value)}>
            {(field?.choices ?? []).map((name) => (
              <option key={name} value={String(name)}>
                {name}
              </option>
            ))}
            <option value="gpt">{own && !isGpt ? 'as written in JSON' : 'a GPT of your own size'}</option>
          </select>
          <Fault planner={planner} path="model" />
        </label>
        <label class="field">
          <span>Name</span>
          <input type="text" value={String(spec.name ?? '')} placeholder="optional" onInput={(e) => planner.change(withValue(spec, 'name', e.currentTarget.value || undefined))} />
          <Fault planner={planner} path="name" />
        </label>
      </fieldset>
      {isGpt && <Fields group={OWN_SIZE} planner={planner} />}
    </>
  );
}

function Fields({ group, planner }: { group: Group; planner: Planner }) {
  const schemas = planner.schemas.value ?? {};
  return (
    <fieldset>
      <legend>{group.title}</legend>
      {group.fields.map(([path, label, unit]) => {
        const field = fieldAt(path, ROOT, schemas);
        return field && <OneField key={path} field={field} label={label} unit={unit ?? ''} planner={planner} />;
      })}
    </fieldset>
  );
}

function OneField({ field, label, unit, planner }: { field: SpecField; label: string; unit: string; planner: Planner }) {
  const { path } = field;
  const value = valueAt(planner.spec.value, path);
  const set = (next: unknown): void => planner.change(withValue(planner.spec.value, path, next));
  const wrong = planner.faultOf(path) !== undefined;
  return (
    <label class="field">
      <span>
        {label}
        {unit && `, ${unit}`}
      </span>
      <Input field={field} value={value} wrong={wrong} set={set} />
      <Fault planner={planner} path={path} />
    </label>
  );
}

function Input({ field, value, wrong, set }: { field: SpecField; value: unknown; wrong: boolean; set(value: unknown): void }) {
  const fallback = shortWord(field.fallback);
  if (field.kind === 'choice') {
    const shown = value === undefined ? fallback : shortWord(value);
    const pick = (text: string): void => set(field.choices.find((choice) => String(choice) === text));
    return (
      <select value={shown} aria-invalid={wrong} onChange={(e) => pick(e.currentTarget.value)}>
        {!field.choices.some((choice) => String(choice) === shown) && <option value={shown}>default</option>}
        {field.choices.map((choice) => (
          <option key={choice} value={String(choice)}>
            {choice}
          </option>
        ))}
      </select>
    );
  }
  if (field.kind === 'boolean') return <input type="checkbox" checked={Boolean(value ?? field.fallback)} onChange={(e) => set(e.currentTarget.checked)} />;
  const isNumber = field.kind !== 'text';
  const read = (text: string): unknown => (text === '' ? undefined : isNumber && Number.isFinite(Number(text)) ? Number(text) : text);
  return (
    <input
      type="text"
      inputMode={isNumber ? 'decimal' : 'text'}
      value={value === undefined ? '' : String(value)}
      placeholder={fallback}
      aria-invalid={wrong}
      onInput={(e) => set(read(e.currentTarget.value))}
    />
  );
}

/** What stands in an empty field; of `{optimizer: none, ...}` and `{params: bf16, ...}` the word that is their short form. */
function shortWord(fallback: unknown): string {
  if (typeof fallback !== 'object' || fallback === null) return String(fallback ?? '');
  const { optimizer, params } = fallback as { optimizer?: string; params?: string };
  return optimizer ?? params ?? '';
}

function Fault({ planner, path }: { planner: Planner; path: string }) {
  const fault = planner.faultOf(path);
  if (!fault) return null;
  return (
    <em class="fault-text">
      {fault.problem}
      {fault.fix && <> · {fault.fix}</>}
    </em>
  );
}

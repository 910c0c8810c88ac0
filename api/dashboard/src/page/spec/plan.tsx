/** What the spec would need: the recommendation, and every stage at every number of workers beside it. */

import { bytes, short, text } from '../../domain/format';
import { KIND_LABEL, MEMORY_KINDS } from '../../domain/memory';
import { accelerators, bytesOn, offloadsOf, otherTiers, partsOn, sizesOf, smallestThatHolds, stagesOf } from '../../domain/planparts';
import { withValue } from '../../domain/draft';
import { SignIn } from '../../part/signin';
import { Table, type Column } from '../../part/table';
import type { Planner } from '../../store/planner';
import type { Plan, PlanChoice } from '../../wire/plan';

export function PlanView({ planner }: { planner: Planner }) {
  const { value: problem } = planner.problem;
  const { value: answer } = planner.answer;
  const stale = planner.asking.value || problem !== null;
  return (
    <div class={stale ? 'plan stale' : 'plan'} aria-live="polite">
      {problem && <Problems planner={planner} />}
      {answer?.plan && <PlanBody plan={answer.plan} planner={planner} />}
      {answer && !answer.plan && <p class="panel hint">The size of this model is known only where it is built, so there is no plan for it.</p>}
      {answer && <Report report={answer.report} />}
    </div>
  );
}

function Problems({ planner }: { planner: Planner }) {
  const problem = planner.problem.value;
  if (!problem) return null;
  return (
    <div class="panel problems" role="alert">
      <h2>{problem.title}</h2>
      {problem.notPermitted && <SignIn done={() => planner.change(planner.spec.value)} />}
      {problem.errors.length === 0 && !problem.notPermitted && <p>{problem.detail}</p>}
      <ul>
        {problem.errors.map((e) => (
          <li key={e.field}>
            <code>{e.field}</code> {e.problem} {e.fix && <b>{e.fix}</b>}
          </li>
        ))}
      </ul>
    </div>
  );
}

function PlanBody({ plan, planner }: { plan: Plan; planner: Planner }) {
  const { recommendation: best } = plan;
  const use = (choice: { stage: number; offload: string }): void => {
    const staged = withValue(planner.spec.value, 'stage', choice.stage);
    // An offload of the user's own has more in it than its label says, and is there already.
    const whole = ['none', 'cpu', 'nvme'].includes(choice.offload) && choice.offload !== (staged['offload'] ?? 'none');
    planner.change(whole ? withValue(staged, 'offload', choice.offload) : staged);
  };
  return (
    <>
      <div class="panel recommendation">
        <div>
          <h2>
            Recommended: stage {best.stage}
            {best.offload !== 'none' && `, offload ${best.offload}`} on {best.workers} worker{best.workers === 1 ? '' : 's'}
          </h2>
          <p>{readable(best.why)}</p>
          <p class="hint">
            {plan.model}: {short(plan.numel)} parameters · {plan.micro_batches} micro-batches per step ·{' '}
            {plan.capacity_bytes === null ? 'memory of a worker not known' : `${text(bytes(plan.capacity_bytes))} per worker`}
          </p>
        </div>
        {planner.spec.value.stage !== best.stage && (
          <button type="button" class="button" onClick={() => use(best)}>
            Use stage {best.stage}
          </button>
        )}
      </div>
      <Accelerators plan={plan} use={use} />
      {offloadsOf(plan.choices).map((offload) => (
        <Matrix key={offload} plan={plan} offload={offload} chosen={planner.spec.value.stage} use={use} />
      ))}
    </>
  );
}

function Matrix({ plan, offload, chosen, use }: { plan: Plan; offload: string; chosen: unknown; use(choice: PlanChoice): void }) {
  const choices = plan.choices.filter((choice) => choice.offload === offload);
  const scale = Math.max(...choices.map((choice) => bytesOn(choice, 'device')), 1);
  const stages = stagesOf(choices);
  const at = (stage: number, workers: number): PlanChoice | undefined => choices.find((c) => c.stage === stage && c.workers === workers);
  return (
    <section class="panel" aria-labelledby={`plan-${offload}`}>
      <h2 id={`plan-${offload}`}>Memory per rank{offload !== 'none' && `, offload ${offload}`}</h2>
      <div class="scroll-x" tabIndex={0} role="region" aria-label="Every stage at every number of workers">
        <table class="matrix">
          <thead>
            <tr>
              <th scope="col">Workers</th>
              {stages.map((stage) => (
                <th key={stage} scope="col" class={stage === chosen ? 'chosen' : ''}>
                  Stage {stage}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {sizesOf(choices).map((workers) => (
              <tr key={workers}>
                <th scope="row">{workers}</th>
                {stages.map((stage) => {
                  const choice = at(stage, workers);
                  return <td key={stage}>{choice && <Cell choice={choice} scale={scale} best={isBest(plan, choice)} chosen={stage === chosen} use={use} />}</td>;
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <Legend />
    </section>
  );
}

const Legend = () => (
  <ul class="legend">
    {MEMORY_KINDS.map((kind) => (
      <li key={kind}>
        <i class={`kind-${kind}`} /> {KIND_LABEL[kind]}
      </li>
    ))}
  </ul>
);

const ACCELERATOR_COLUMNS: readonly Column[] = ['Memory', 'Fits with', { num: 'Per rank' }, { num: 'Moved per step' }];

/** What it takes on accelerators of each size. */
function Accelerators({ plan, use }: { plan: Plan; use(choice: PlanChoice): void }) {
  return (
    <section class="panel" aria-labelledby="accelerators-title">
      <h2 id="accelerators-title">On which accelerator</h2>
      <Table label="Accelerators, by memory" columns={ACCELERATOR_COLUMNS}>
        {accelerators(plan.choices).map(({ name, example, andLarger, choice }) => (
          <tr key={name}>
            <td>
              <b>{name}</b> <small>{andLarger ? 'and larger' : example}</small>
            </td>
            <td>{choice ? <Easiest choice={choice} use={use} /> : <span class="bad-text">nothing planned here</span>}</td>
            <td class="num">{choice && text(bytes(bytesOn(choice, 'device')))}</td>
            <td class="num">{choice && `${short(choice.elements_per_step)} elements`}</td>
          </tr>
        ))}
      </Table>
    </section>
  );
}

function Easiest({ choice, use }: { choice: PlanChoice; use(choice: PlanChoice): void }) {
  return (
    <button type="button" class="button quiet flush" onClick={() => use(choice)}>
      stage {choice.stage}
      {choice.offload !== 'none' && `, offload ${choice.offload}`} on {choice.workers} worker{choice.workers === 1 ? '' : 's'}
    </button>
  );
}

const isBest = (plan: Plan, choice: PlanChoice): boolean =>
  plan.recommendation.stage === choice.stage && plan.recommendation.workers === choice.workers && plan.recommendation.offload === choice.offload;

function Cell({ choice, scale, best, chosen, use }: { choice: PlanChoice; scale: number; best: boolean; chosen: boolean; use(choice: PlanChoice): void }) {
  const parts = partsOn(choice, 'device');
  const total = bytesOn(choice, 'device');
  const spoken = parts.map((p) => `${KIND_LABEL[p.kind]} ${text(bytes(p.bytes))}`).join(', ');
  const verdict = choice.fits === null ? `fits ${smallestThatHolds(total)}` : choice.fits ? 'fits' : 'does not fit';
  return (
    <button
      type="button"
      class={`cell ${chosen ? 'chosen' : ''} ${choice.fits === false ? 'over' : ''}`}
      title={`${spoken}. ${choice.note}`}
      onClick={() => use(choice)}
    >
      <span class="hidden">
        Use stage {choice.stage}; on {choice.workers} workers it needs
      </span>
      <span class="cell-head">
        <b>{text(bytes(total))}</b>
        {best && <span class="star">recommended</span>}
      </span>
      <span class="membar thin" aria-hidden="true">
        {parts.map((part) => (
          <i key={part.kind} class={`kind-${part.kind}`} style={{ width: `${((100 * part.bytes) / scale).toFixed(2)}%` }} />
        ))}
      </span>
      <small class={choice.fits === false ? 'bad-text' : ''}>
        {verdict} · {short(choice.elements_per_step)} elements moved
      </small>
      {otherTiers(choice).map((tier) => (
        <small key={tier}>
          {tier} {text(bytes(bytesOn(choice, tier)))}
        </small>
      ))}
    </button>
  );
}

/** "19529520 bytes" reads better as "18.6 MiB". */
const readable = (why: string): string => why.replace(/\b(\d{4,}) bytes\b/g, (_all, count: string) => text(bytes(Number(count))));

function Report({ report }: { report: Record<string, string> }) {
  const lines = Object.entries(report);
  if (!lines.length) return null;
  return (
    <section class="panel">
      <h2>Decided for you</h2>
      <dl class="effect">
        {lines.map(([field, words]) => (
          <div key={field}>
            <dt>
              <code>{field}</code>
            </dt>
            <dd>{words}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

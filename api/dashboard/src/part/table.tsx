/** A table, moved sideways where the page is too narrow for it. */

import type { ComponentChildren } from 'preact';

/** What stands over a column; `num`: over numbers, on their side; `unseen`: for those alone who hear the page. */
export type Column = string | { num: string } | { unseen: string };

interface TableProps {
  label: string;
  columns: readonly Column[];
  class?: string;
  /** Its rows. */
  children: ComponentChildren;
}

export function Table({ label, columns, class: kind, children }: TableProps) {
  return (
    <div class="scroll-x" tabIndex={0} role="region" aria-label={label}>
      <table class={kind ? `plain ${kind}` : 'plain'}>
        <thead>
          <tr>
            {columns.map((column) => (
              <Head key={JSON.stringify(column)} of={column} />
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

function Head({ of: column }: { of: Column }) {
  if (typeof column === 'string') return <th>{column}</th>;
  if ('num' in column) return <th class="num">{column.num}</th>;
  return (
    <th>
      <span class="hidden">{column.unseen}</span>
    </th>
  );
}

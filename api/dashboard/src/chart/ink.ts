/** Colours of the style sheet for canvases, resolved for the present theme. */

let probe: HTMLSpanElement | null = null;

/** `ink('--accent')` as rgb text; `alpha` in [0, 1] makes it lighter. */
export function ink(variable: string, alpha = 1): string {
  if (!probe) {
    probe = document.createElement('span');
    probe.hidden = true;
    document.body.append(probe);
  }
  probe.style.color = `var(${variable})`;
  const color = getComputedStyle(probe).color;
  return alpha >= 1 ? color : color.replace(/^rgb\((.*)\)$/, `rgba($1, ${alpha})`);
}

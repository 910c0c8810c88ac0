/** Colours of the style sheet for canvases, resolved for the present theme. */

let probe: HTMLSpanElement | null = null;

function resolved(color: string): string {
  if (!probe) {
    probe = document.createElement('span');
    probe.hidden = true;
    document.body.append(probe);
  }
  probe.style.color = color;
  return getComputedStyle(probe).color;
}

/** `ink('--accent')` as rgb text; `alpha` in [0, 1] lets shine through what is below. */
export function ink(variable: string, alpha = 1): string {
  const color = resolved(`var(${variable})`);
  return alpha >= 1 ? color : color.replace(/^rgb\((.*)\)$/, `rgba($1, ${alpha})`);
}

/** The colour mixed into that of the panel: paler, and nothing shines through. */
export const tint = (variable: string, strength: number): string =>
  resolved(`color-mix(in srgb, var(${variable}) ${Math.round(strength * 100)}%, var(--panel))`);

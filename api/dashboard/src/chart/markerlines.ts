/** Events as lines over a chart: tall ones across it with a flag, quiet ones as ticks at its foot. */

import type uPlot from 'uplot';
import type { Marker, Tone } from '../domain/marker';
import { pointedStep, walkedStep } from './cursor';
import { ink } from './ink';

export const TONE_INK: Record<Tone, string> = {
  calm: '--tone-calm',
  good: '--tone-good',
  change: '--tone-change',
  warn: '--tone-warn',
  bad: '--tone-bad',
};

const REACH_PX = 7;

export function drawMarkers(u: uPlot, markers: readonly Marker[], broken: readonly number[]): void {
  const { ctx, bbox } = u;
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const marker of markers) {
    const x = Math.round(u.valToPos(marker.step, 'x', true));
    ctx.strokeStyle = ctx.fillStyle = ink(TONE_INK[marker.tone]);
    if (marker.tall) drawTall(ctx, x, bbox, ratio);
    else ctx.fillRect(x - ratio / 2, bbox.top + bbox.height - 6 * ratio, ratio, 6 * ratio);
  }
  ctx.fillStyle = ink('--tone-bad');
  for (const step of broken) ctx.fillRect(Math.round(u.valToPos(step, 'x', true)) - ratio, bbox.top, 2 * ratio, 10 * ratio);
  drawPointed(u, ratio);
  ctx.restore();
}

function drawTall(ctx: CanvasRenderingContext2D, x: number, box: uPlot.BBox, ratio: number): void {
  ctx.lineWidth = ratio;
  ctx.setLineDash([3 * ratio, 3 * ratio]);
  ctx.beginPath();
  ctx.moveTo(x + 0.5, box.top);
  ctx.lineTo(x + 0.5, box.top + box.height);
  ctx.stroke();
  ctx.setLineDash([]);
  ctx.beginPath();
  ctx.moveTo(x - 4 * ratio, box.top);
  ctx.lineTo(x + 4 * ratio, box.top);
  ctx.lineTo(x, box.top + 6 * ratio);
  ctx.fill();
}

function drawPointed(u: uPlot, ratio: number): void {
  const step = pointedStep.peek() ?? walkedStep.peek();
  if (step === null) return;
  const x = Math.round(u.valToPos(step, 'x', true));
  u.ctx.fillStyle = ink('--accent', 0.35);
  u.ctx.fillRect(x - 2 * ratio, u.bbox.top, 4 * ratio, u.bbox.height);
}

/** Markers within reach of a pointer at `left` CSS pixels, the most telling first. */
export function markersNear(u: uPlot, markers: readonly Marker[], left: number): Marker[] {
  return markers
    .filter((marker) => Math.abs(u.valToPos(marker.step, 'x') - left) <= REACH_PX)
    .sort((a, b) => Number(b.tall) - Number(a.tall))
    .slice(0, 4);
}

/** One chart: a title, the values at the pointer, the drawing. Draws again when its data, the zoom or the theme change. */

import { useSignal, useSignalEffect, type ReadonlySignal, type Signal } from '@preact/signals';
import type { RefObject } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import type { Marker } from '../domain/marker';
import type { StepWindow } from '../domain/zoom';
import { roundWindow } from '../domain/zoom';
import { themeVersion } from '../store/theme';
import { cursorStep, pointedStep, walkedStep } from './cursor';
import { drawMarkers, markersNear } from './markerlines';
import { optionsOf, type Layer } from './options';

export interface Reading {
  label: string;
  text: string;
  /** Variable of the colour, where the reading has one. */
  ink?: string;
  dashed?: boolean;
}

export interface PlotContent {
  layers: readonly Layer[];
  data: uPlot.AlignedData;
  broken?: readonly number[];
  /** What the head of the chart says at a step, or now. */
  read(step: number | null): readonly Reading[];
  /** Steps that the drawn points stand for together. */
  covered?: number;
  /** "1 of 12 shown" */
  note?: string | null;
}

export interface PlotProps {
  title: string;
  /** Ticks of the vertical axis are multiples of one of these, where it matters. */
  ticks?: readonly number[];
  axis(value: number): string;
  /** Ticks of the horizontal axis, where it is not steps. */
  across?(value: number): string;
  /** Charts of one group move their pointers together. */
  group?: string;
  fromZero?: boolean;
  log?: boolean;
  content: ReadonlySignal<PlotContent>;
  markers: ReadonlySignal<readonly Marker[]>;
  /** Steps that all charts show. */
  view: ReadonlySignal<StepWindow>;
  onZoom(window: StepWindow | null): void;
}

/** Markers near the pointer, which is so far from the left. */
interface Near {
  left: number;
  markers: readonly Marker[];
}

function nearOf(plot: uPlot, markers: readonly Marker[]): Near | null {
  const left = plot.cursor.left ?? 0;
  const found = markersNear(plot, markers, left);
  return found.length ? { left, markers: found } : null;
}

/** The drawing inside `host`: made anew for other curves, another theme or scale; drawn again for new data, markers or zoom. */
function useDrawing(props: PlotProps, host: RefObject<HTMLDivElement | null>, near: Signal<Near | null>): void {
  const { content, markers, view } = props;
  const plot = useRef<uPlot | null>(null);
  const shape = content.value.layers.map((layer) => layer.key).join();

  useEffect(() => {
    const element = host.current as HTMLDivElement;
    const u = new uPlot(
      optionsOf(props, content.peek().layers, { width: element.clientWidth, height: element.clientHeight }, {
        draw: (p) => drawMarkers(p, markers.peek(), content.peek().broken ?? []),
        moved: (p, step, hovered) => {
          if (hovered) cursorStep.value = step;
          near.value = hovered && step !== null ? nearOf(p, markers.peek()) : null;
        },
        selected: (from, to) => props.onZoom(roundWindow(from, to)),
        reset: () => props.onZoom(null),
      }),
      content.peek().data,
      element,
    );
    plot.current = u;
    const observer = new ResizeObserver(() => u.setSize({ width: element.clientWidth, height: element.clientHeight }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      u.destroy();
      plot.current = null;
    };
  }, [shape, themeVersion.value, props.log]);

  useSignalEffect(() => {
    const { data } = content.value;
    void view.value;
    plot.current?.setData(data);
  });
  useSignalEffect(() => {
    void [markers.value, pointedStep.value, walkedStep.value];
    plot.current?.redraw(false);
  });
}

export function Plot(props: PlotProps) {
  const { title, content, markers } = props;
  const host = useRef<HTMLDivElement>(null);
  const near = useSignal<Near | null>(null);
  useDrawing(props, host, near);

  const { note, data } = content.value;
  const [steps] = data;
  const marked = markers.value;
  const readings = content.value.read(cursorStep.value ?? walkedStep.value);
  const spoken = `${title}: ${readings.map((r) => `${r.label} ${r.text}`).join(', ') || 'no data yet'}; ${marked.length} events marked`;
  return (
    <figure
      class="plot"
      data-chart={title}
      data-points={steps.length}
      data-covered={content.value.covered}
      data-last={steps[steps.length - 1]}
      data-markers={marked.map((m) => `${m.kind}@${m.step}`).join(' ')}
    >
      <figcaption>
        <h3>{title}</h3>
        <Readings of={readings} />
      </figcaption>
      <div class="plot-canvas" ref={host} role="img" aria-label={spoken} >
        {note && <span class="plot-note">{note}</span>}
        {near.value && <Tip near={near.value} width={host.current?.clientWidth ?? 0} />}
      </div>
    </figure>
  );
}

function Readings({ of: readings }: { of: readonly Reading[] }) {
  return (
    <ul class="readings">
      {readings.map((r) => (
        <li key={r.label}>
          {r.ink && <i class={r.dashed ? 'key dashed' : 'key'} style={{ '--key': `var(${r.ink})` }} />}
          <span>{r.label}</span> <b>{r.text}</b>
        </li>
      ))}
    </ul>
  );
}

function Tip({ near, width }: { near: Near; width: number }) {
  return (
    <div class="plot-tip" style={tipPlace(near.left, width)}>
      {near.markers.map((m) => (
        <p key={m.eventId} class={`tone-${m.tone}`}>
          <b>step {m.step}</b> {m.label}
        </p>
      ))}
    </div>
  );
}

/** The tip stays inside the chart: it opens to the side that has room. */
const tipPlace = (left: number, width: number): Record<string, string> =>
  left > width / 2 ? { right: `${Math.max(0, width - left - 40)}px` } : { left: `${left + 60}px` };

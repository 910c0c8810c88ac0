/** The keys of the charts: the arrows read all of them at one step, as the pointer does; Escape leaves. */

import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { walkedStep } from '../../chart/cursor';
import { walked } from '../../domain/walk';
import type { StepWindow } from '../../domain/zoom';
import { isTyping } from '../../part/keyboard';
import type { Point } from '../../wire/series';

export interface Charted {
  leave(): void;
  points(): readonly Point[];
  window(): StepWindow;
}

const WAYS: Readonly<Record<string, number>> = { ArrowLeft: -1, ArrowRight: 1 };
const LONG = 10;

export function useChartKeys(charted: Charted): void {
  const latest = useSignal(charted);
  latest.value = charted;
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (isTyping(event.target) || isScrolled(event.target) || document.querySelector('dialog[open]')) return;
      const way = WAYS[event.key];
      const { leave, points, window } = latest.peek();
      if (event.key === 'Escape') {
        walkedStep.value = null;
        leave();
      } else if (way !== undefined && !event.ctrlKey && !event.metaKey && !event.altKey) {
        event.preventDefault();
        walkedStep.value = walked(points(), window(), walkedStep.peek(), event.shiftKey ? way * LONG : way);
      }
    };
    addEventListener('keydown', onKey);
    return () => {
      walkedStep.value = null;
      removeEventListener('keydown', onKey);
    };
  }, []);
}

/** Arrows scroll a table that is wider than its frame. */
const isScrolled = (target: EventTarget | null): boolean => target instanceof HTMLElement && target.matches('.scroll-x, .log');

// Mouse, pen and fingers over an element: dragged, pinched, turned the wheel, pointed, pressed.

type Kind = "mouse" | "pen" | "touch";

export interface Gestures {
  pan: (right: number, down: number) => void;
  zoom: (factor: number, left: number, top: number) => void;
  look: (left: number, top: number, kind: Kind) => void;
  /** Nothing is pointed at any more. */
  away: () => void;
  choose: (left: number, top: number, kind: Kind) => void;
}

// A press that moves further is no choice.
const STILL = 5;
const WHEEL = 0.0022;
const LINE = 16;

interface Held {
  left: number;
  top: number;
}

/** Until the answer is called. */
export function followGestures(element: HTMLElement, gestures: Gestures): () => void {
  const held = new Map<number, Held>();
  let travelled = 0;
  const placeOf = (event: MouseEvent): Held => {
    const box = element.getBoundingClientRect();
    return { left: event.clientX - box.left, top: event.clientY - box.top };
  };
  const kindOf = (event: PointerEvent): Kind => (event.pointerType === "touch" || event.pointerType === "pen" ? event.pointerType : "mouse");

  const on = {
    pointerdown(event: PointerEvent) {
      if (event.button !== 0) return;
      element.setPointerCapture(event.pointerId);
      if (held.size === 0) travelled = 0;
      held.set(event.pointerId, placeOf(event));
    },
    pointermove(event: PointerEvent) {
      const now = placeOf(event);
      const before = held.get(event.pointerId);
      if (!before) {
        if (event.pointerType !== "touch") gestures.look(now.left, now.top, kindOf(event));
        return;
      }
      held.set(event.pointerId, now);
      travelled += Math.hypot(now.left - before.left, now.top - before.top);
      if (travelled < STILL) return;
      const other = [...held].find(([pointer]) => pointer !== event.pointerId)?.[1];
      if (!other) {
        gestures.pan(now.left - before.left, now.top - before.top);
        return;
      }
      const middle = { left: (now.left + other.left) / 2, top: (now.top + other.top) / 2 };
      gestures.pan((now.left - before.left) / 2, (now.top - before.top) / 2);
      gestures.zoom(apart(now, other) / (apart(before, other) || 1), middle.left, middle.top);
    },
    pointerup(event: PointerEvent) {
      if (!held.delete(event.pointerId)) return;
      const { left, top } = placeOf(event);
      if (held.size > 0 || travelled >= STILL) return;
      gestures.choose(left, top, kindOf(event));
    },
    pointercancel(event: PointerEvent) {
      held.delete(event.pointerId);
    },
    pointerleave: gestures.away,
    wheel(event: WheelEvent) {
      event.preventDefault();
      const turned = event.deltaY * (event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE : 1);
      const { left, top } = placeOf(event);
      gestures.zoom(Math.exp(-turned * WHEEL), left, top);
    },
  };
  const names = Object.keys(on) as (keyof typeof on)[];
  for (const name of names) element.addEventListener(name, on[name] as EventListener, { passive: false });
  return () => {
    for (const name of names) element.removeEventListener(name, on[name] as EventListener);
  };
}

function apart(one: Held, other: Held): number {
  return Math.hypot(one.left - other.left, one.top - other.top);
}

// Where the focus goes on when what held it has gone: of a list's row to the next row, else to the view's heading; of
// anything else to where its own view says.

import type { RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";

/** After a change of `cause`, focus `next` if what held the focus has gone by it. */
export function useFocusAfter(cause: unknown, next: RefObject<HTMLElement | null>): void {
  const opened = useRef(false);
  useEffect(() => {
    if (opened.current && document.activeElement === document.body) next.current?.focus({ preventScroll: true });
    opened.current = true;
  }, [cause]);
}

export function FocusKeeper() {
  useEffect(() => {
    let held: HTMLElement | null = null;
    let next: Element | null = null;
    const come = ({ target }: FocusEvent) => {
      const element = target as HTMLElement;
      // A dialog only borrows the focus.
      if (element.closest("dialog")) return;
      held = element.closest(".table-frame tr") && element;
      next = null;
    };
    const watch = new MutationObserver((records) => {
      if (!held || held.isConnected) return;
      next ??= rowAfter(records, held);
      if (document.querySelector("dialog[open]") || document.activeElement !== document.body) return;
      const link = next?.isConnected ? next.querySelector("a") : null;
      (link ?? document.querySelector<HTMLElement>("#main h1"))?.focus();
      held = null;
    });
    addEventListener("focusin", come);
    watch.observe(document.body, { childList: true, subtree: true });
    return () => {
      removeEventListener("focusin", come);
      watch.disconnect();
    };
  }, []);
  return null;
}

/** The row after the one that was removed; that which `gone` stood in, where it alone was. */
function rowAfter(records: MutationRecord[], gone: Element): Element | null {
  for (const { removedNodes, nextSibling, target } of records) {
    const removed = [...removedNodes].find((node) => node.contains(gone));
    if (removed) return removed.nodeName === "TR" ? (nextSibling as Element | null) : (target as Element).closest("tr");
  }
  return null;
}

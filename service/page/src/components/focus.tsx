// Where the focus goes on when the row of a list that held it has gone: to the next row, else to the view's heading.

import { useEffect } from "preact/hooks";

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

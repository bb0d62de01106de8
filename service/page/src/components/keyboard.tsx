// Shortcuts: one table that the page acts by and that `?` shows.

import { useEffect } from "preact/hooks";

import { go } from "../router";
import { State, useValue } from "../state";
import { nextTheme } from "../theme";
import { Dialog } from "./dialog";

const SHORTCUTS: [string, string, () => void][] = [
  ["g o", "Overview", () => go("#/")],
  ["g j", "Jobs", () => go("#/jobs")],
  ["g g", "Graphs", () => go("#/graphs")],
  ["g e", "Embeddings", () => go("#/embeddings")],
  ["g a", "Aliases", () => go("#/aliases")],
  ["g k", "API keys", () => go("#/keys")],
  ["n", "New job", () => go("#/jobs/new")],
  ["j", "Next row", () => step(1)],
  ["k", "Row before", () => step(-1)],
  ["/", "To the first field of the view", () => main().querySelector<HTMLElement>("input, select")?.focus()],
  ["t", "Light, dark, or as the system", nextTheme],
  ["?", "This list", () => open.set(true)],
];
const SEQUENCE_MS = 1200;
const open = new State(false);

export function showShortcuts(): void {
  open.set(true);
}

function main(): HTMLElement {
  return document.getElementById("main")!;
}

/** From row to row of the view's tables, by their links. */
function step(by: number): void {
  const rows = [...main().querySelectorAll<HTMLElement>("tbody tr")];
  const links = rows.flatMap((row) => row.querySelector<HTMLElement>("a") ?? []);
  const here = links.findIndex((link) => link.closest("tr")!.contains(document.activeElement));
  links[here < 0 ? 0 : Math.min(Math.max(here + by, 0), links.length - 1)]?.focus();
}

export function Keyboard() {
  const shown = useValue(open);
  useEffect(() => {
    let typed = "";
    let at = 0;
    const press = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      if (target.matches("input, select, textarea, [contenteditable]")) return;
      const now = performance.now();
      typed = typed === "g" && now - at < SEQUENCE_MS ? `g ${event.key}` : event.key;
      at = now;
      const found = SHORTCUTS.find(([keys]) => keys === typed);
      if (!found) return;
      event.preventDefault();
      found[2]();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  if (!shown) return null;
  return (
    <Dialog title="Shortcuts" onClose={() => open.set(false)}>
      <dl class="shortcuts">
        {SHORTCUTS.map(([keys, what]) => (
          <div key={keys}>
            <dt>
              {keys.split(" ").map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
        <div>
          <dt>
            <kbd>Esc</kbd>
          </dt>
          <dd>Close what is open</dd>
        </div>
      </dl>
      <p class="soft">
        <a href="/page/third-party-licenses.txt">Licences of what the page is made with</a>
      </p>
    </Dialog>
  );
}

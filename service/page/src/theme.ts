// Light, dark, or as the system has it; the choice is remembered in this browser.

import { State } from "./state";

export type Theme = "system" | "light" | "dark";

const STORED = "rgrl-theme";
const ORDER: Theme[] = ["system", "light", "dark"];
const dark = matchMedia("(prefers-color-scheme: dark)");

function stored(): Theme {
  const theme = document.documentElement.dataset.theme;
  return theme === "light" || theme === "dark" ? theme : "system";
}

export const theme = new State<Theme>(stored());

/** What is drawn on a canvas follows this and draws anew: colours are as they were read. */
export const isDark = new State(looksDark());

function looksDark(): boolean {
  return theme.value === "dark" || (theme.value === "system" && dark.matches);
}

dark.addEventListener("change", () => isDark.set(looksDark()));

export function nextTheme(): void {
  const next = ORDER[(ORDER.indexOf(theme.value) + 1) % ORDER.length]!;
  if (next === "system") {
    localStorage.removeItem(STORED);
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem(STORED, next);
    document.documentElement.dataset.theme = next;
  }
  theme.set(next);
  isDark.set(looksDark());
}

/** A design token's colour as a canvas takes it, such as `color("--accent")`. */
export function color(token: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${token})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

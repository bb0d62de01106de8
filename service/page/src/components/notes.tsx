// What a view says when there is something wrong, nothing yet, or nothing to show.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";

import type { Problem } from "../api/client";
import { Icon } from "./icons";

export function sentence(text: string): string {
  const whole = text.trim();
  if (!whole) return whole;
  return whole[0]!.toUpperCase() + whole.slice(1) + (/[.!?…]$/.test(whole) ? "" : ".");
}

/** The server's words as a sentence; what it sets in backquotes is code. */
export function Words({ text }: { text: string }) {
  return (
    <>
      {sentence(text)
        .split("`")
        .map((part, position) => (position % 2 ? <code key={position}>{part}</code> : part))}
    </>
  );
}

/** A refusal as one message, the faults of single fields below it, and what to do. */
export function ProblemNote({ problem }: { problem: Problem | null }) {
  if (!problem) return null;
  const told = problem.errors.filter(({ detail }) => !problem.message.includes(detail));
  return (
    <div class="note bad" role="alert">
      <Icon name="alert" />
      <div>
        <p>
          <Words text={problem.message} />
        </p>
        {told.map(({ pointer, detail }) => (
          <p key={pointer}>
            {pointer && <code>{pointer}</code>} {detail}
          </p>
        ))}
        {problem.remedy && (
          <p class="soft">
            <Words text={problem.remedy} />
          </p>
        )}
      </div>
    </div>
  );
}

export function Note({ kind, children }: { kind: "bad" | "warn" | "info"; children: ComponentChildren }) {
  return (
    <div class={`note ${kind}`}>
      <Icon name={kind === "info" ? "info" : "alert"} />
      <div>{children}</div>
    </div>
  );
}

/** There is nothing of the kind: what it would be, and how to come by one. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

/** Grey lines where an answer will stand, of its height; only when it takes long enough to be seen. */
export function Loading({ lines = 4 }: { lines?: number }) {
  const [slow, setSlow] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setSlow(true), 200);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div class={slow ? "loading slow" : "loading"} aria-busy="true">
      <span class="hidden">Loading</span>
      {Array.from({ length: lines }, (_, line) => (
        <div key={line} class="loading-line" />
      ))}
    </div>
  );
}

// What views are built of: their head, panels, lists of facts, ids to copy.

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";

import { shortId } from "../format";
import { Icon } from "./icons";
import { tell } from "./toasts";

interface ViewProps {
  title: string;
  /** Beside the title, such as a status. */
  beside?: ComponentChildren;
  /** The way back: its words and address. */
  back?: [string, string];
  actions?: ComponentChildren;
  children: ComponentChildren;
}

/** One view. Its title is the document's, and is where the focus goes when the view is come to. */
export function View({ title, beside, back, actions, children }: ViewProps) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${title} · rgrl`;
  }, [title]);
  useEffect(() => {
    // On the first view of all nothing is taken from the browser's own order.
    if (arrived) heading.current?.focus({ preventScroll: true });
    arrived = true;
    scrollTo(0, 0);
  }, []);
  return (
    <>
      <header class="view-head">
        <div class="view-title">
          {back && (
            <a class="back" href={back[1]}>
              {back[0]}
            </a>
          )}
          <h1 ref={heading} tabIndex={-1}>
            {title}
          </h1>
          {beside}
        </div>
        {actions && <div class="view-actions">{actions}</div>}
      </header>
      {children}
    </>
  );
}

let arrived = false;

interface PanelProps {
  title: string;
  actions?: ComponentChildren;
  class?: string;
  children: ComponentChildren;
}

export function Panel({ title, actions, class: look = "", children }: PanelProps) {
  const heading = useId();
  return (
    <section class={`panel ${look}`} aria-labelledby={heading}>
      <header class="panel-head">
        <h2 id={heading}>{title}</h2>
        {actions}
      </header>
      {children}
    </section>
  );
}

export type Fact = [string, ComponentChildren];

/** Names and values; those without a value are left out. */
export function Facts({ facts }: { facts: Fact[] }) {
  return (
    <dl class="facts">
      {facts
        .filter(([, value]) => value !== null && value !== undefined && value !== "")
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

/** An id, shortened where it stands, whole on the clipboard; `plain` where that it can be copied is to be seen by all. */
export function Copy({ text, short = shortId(text), plain = false }: { text: string; short?: string; plain?: boolean }) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      tell("Copied");
    } catch {
      // Browsers keep the clipboard from pages that come without TLS from another machine.
      tell(`Not allowed to copy here; it is ${text}`, true);
    }
  };
  return (
    <button type="button" class="copy" title={text} onClick={copy}>
      <span class={plain ? "copy-word" : "hidden"}>Copy </span>
      <code>{short}</code>
      <Icon name="copy" />
    </button>
  );
}

// A text of any length where there is room for a short one.

const MOST = 60;

export function isLong(text: string): boolean {
  return text.length > MOST;
}

/** Its beginning, the whole where it is pointed at. */
export function Clip({ text }: { text: string }) {
  if (!isLong(text)) return <>{text}</>;
  return <span title={text}>{clipped(text)}</span>;
}

/** Its beginning, the whole below it on demand. */
export function Unfold({ text }: { text: string }) {
  if (!isLong(text)) return <>{text}</>;
  return (
    <details class="unfold">
      <summary>{clipped(text)}</summary>
      {text}
    </details>
  );
}

/** A character may be two units of the text. */
function clipped(text: string): string {
  return `${text.slice(0, MOST).replace(/[\uD800-\uDBFF]$/, "")}…`;
}

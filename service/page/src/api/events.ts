// Server-sent events, read with fetch: an EventSource cannot carry a key.

import { keyWanted, Problem, send } from "./client";

const RETRY_MS = 1000;

export interface Message {
  type: string;
  id: string | null;
  data: any;
}

/**
 * Follow a stream to its `end`. One that breaks off, or for which a key is asked, is taken up after the last event seen;
 * a refusal that waiting does not mend ends it.
 */
export async function follow(path: string, signal: AbortSignal, onMessages: (messages: Message[]) => void): Promise<void> {
  let last = "0";
  while (!signal.aborted) {
    try {
      const headers = { Accept: "text/event-stream", "Last-Event-ID": last };
      const response = await send(path, { headers, signal });
      for await (const messages of read(response.body!)) {
        last = messages.findLast((message) => message.id)?.id ?? last;
        onMessages(messages);
        if (messages.at(-1)?.type === "end") return;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && error.status === 401) await keyGiven(signal);
      else if (error instanceof Problem && error.status >= 400 && error.status < 500 && error.status !== 429) return;
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

async function keyGiven(signal: AbortSignal): Promise<void> {
  if (keyWanted.value === null) return;
  await new Promise<void>((resolve) => {
    const leave = keyWanted.follow((wanted) => {
      if (wanted === null) done();
    });
    const done = () => {
      leave();
      resolve();
    };
    signal.addEventListener("abort", done, { once: true });
  });
}

/** The messages of each piece that arrives, together: a replay of thousands is one drawing, not thousands. */
async function* read(body: ReadableStream<Uint8Array<ArrayBuffer>>): AsyncGenerator<Message[]> {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (text + value).split(/\r?\n\r?\n/);
    text = blocks.pop()!;
    const messages = blocks.map(parse).filter((message) => message !== null);
    if (messages.length) yield messages;
  }
}

function parse(block: string): Message | null {
  const message: Message = { type: "message", id: null, data: null };
  let data = "";
  for (const line of block.split(/\r?\n/)) {
    const [, field, value = ""] = line.match(/^(\w+): ?(.*)$/) ?? [];
    if (field === "event") message.type = value;
    if (field === "id") message.id = value;
    if (field === "data") data += value;
  }
  return data ? { ...message, data: JSON.parse(data) } : null;
}

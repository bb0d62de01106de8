// The API: JSON requests, event streams, and the key they carry.

let key = sessionStorage.getItem("rgrl-key");

export function useKey(value) {
  key = value;
  sessionStorage.setItem("rgrl-key", value);
}

export class Problem extends Error {
  constructor(status, problem) {
    super(problem.errors?.[0]?.detail ?? problem.detail ?? `The server answered ${status}.`);
    this.status = status;
  }
}

async function send(path, options = {}) {
  const headers = { ...options.headers };
  if (key) headers.Authorization = `Bearer ${key}`;
  const response = await fetch(path, { ...options, headers });
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}));
    throw new Problem(response.status, problem);
  }
  return response;
}

export async function get(path) {
  return (await send(path)).json();
}

export async function post(path, body) {
  const options = { method: "POST" };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers = { "Content-Type": "application/json" };
  }
  return (await send(path, options)).json();
}

// Follow an event stream to its `end`. Streams are read with fetch, since EventSource cannot carry a key.
// A stream that breaks off is taken up again after the last event seen.
export async function follow(path, lastId, signal, onEvent) {
  let ended = false;
  while (!ended && !signal.aborted) {
    try {
      const headers = { Accept: "text/event-stream", "Last-Event-ID": String(lastId) };
      const response = await send(path, { headers, signal });
      for await (const event of messages(response.body)) {
        if (event.id) lastId = event.id;
        onEvent(event);
        ended ||= event.type === "end";
      }
    } catch (error) {
      if (signal.aborted || (error instanceof Problem && error.status < 500)) return;
    }
    if (!ended) await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

async function* messages(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split(/\r?\n\r?\n/);
    text = blocks.pop();
    for (const block of blocks) {
      const event = parse(block);
      if (event) yield event;
    }
  }
}

function parse(block) {
  const event = { type: "message", id: null, data: "" };
  for (const line of block.split(/\r?\n/)) {
    const [, field, value] = line.match(/^(\w+): ?(.*)$/) ?? [];
    if (field === "event") event.type = value;
    if (field === "id") event.id = value;
    if (field === "data") event.data += value;
  }
  return event.data ? { ...event, data: JSON.parse(event.data) } : null;
}

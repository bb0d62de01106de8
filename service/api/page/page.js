// The page: whether the server is there, the key form, and what is refreshed when.

import { get, Problem, useKey } from "./api.js";
import { refreshJobs } from "./jobs.js";
import { refreshSets } from "./sets.js";

const EVERY_MS = 3000;

const server = document.getElementById("server");
const keyForm = document.getElementById("key-form");

keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(document.getElementById("key").value);
  refresh();
});

async function refresh() {
  try {
    const info = await get("/v1/info");
    server.textContent = `Version ${info.version}, up`;
    server.dataset.state = "up";
    await Promise.all([refreshJobs(), refreshSets()]);
    keyForm.hidden = true;
  } catch (error) {
    const needsKey = error instanceof Problem && error.status === 401;
    keyForm.hidden = !needsKey;
    server.textContent = needsKey ? "Up, and asks for an API key" : `Not reachable: ${error.message}`;
    server.dataset.state = needsKey ? "up" : "down";
  }
}

async function keepFresh() {
  for (;;) {
    if (!document.hidden) await refresh();
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
}

document.addEventListener("job-ended", refresh);
keepFresh();

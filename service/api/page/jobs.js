// Jobs: a card each, kept live by the job's event stream while it runs.

import { follow, get, post } from "./api.js";
import { duration, element, number, show } from "./dom.js";

const SHOWN = 12;
const ACTIVE = ["queued", "running", "cancelling"];
const cards = new Map();

export async function refreshJobs() {
  const { items } = await get(`/v1/jobs?limit=${SHOWN}`);
  const list = document.getElementById("jobs");
  const listed = new Set(items.map((job) => job.id));
  for (const [id, card] of cards) {
    if (!listed.has(id)) {
      card.stop.abort();
      card.root.remove();
      cards.delete(id);
    }
  }
  items.forEach((job, position) => {
    if (!cards.has(job.id)) cards.set(job.id, new Card(job));
    const card = cards.get(job.id);
    card.update(job);
    if (list.children[position] !== card.root) list.insertBefore(card.root, list.children[position] ?? null);
  });
  show("jobs-empty", items.length === 0);
}

class Card {
  constructor(job) {
    this.id = job.id;
    this.stop = new AbortController();
    // By step: what was read at once and what streams in overlap.
    this.losses = new Map();
    this.title = element("h3", {}, job.name ?? job.kind);
    this.status = element("span", { class: "chip" });
    this.detail = element("p", { class: "detail" });
    this.bar = element("progress", { max: "1", "aria-label": "Progress of the present stage" });
    this.curve = curve();
    this.error = element("p", { class: "error" });
    this.cancel = element("button", { class: "quiet", type: "button" }, "Cancel");
    this.cancel.addEventListener("click", () => this.end());
    const head = element("div", { class: "head" }, this.title, this.status);
    this.root = element("li", { class: "card" }, head, this.detail, this.bar, this.curve.root, this.error, this.cancel);
    this.loadLosses();
    if (ACTIVE.includes(job.status)) this.watch();
  }

  update(job) {
    this.job = job;
    this.status.textContent = job.status;
    this.status.dataset.status = job.status;
    this.cancel.hidden = !["queued", "running"].includes(job.status);
    this.error.hidden = !job.error;
    this.error.textContent = job.error ? reason(job.error) : "";
    this.drawProgress(job.phase, job.progress);
  }

  drawProgress(phase, progress) {
    const running = this.job.status === "running";
    this.bar.hidden = !running || !progress;
    let text = running && phase ? phase : took(this.job);
    if (running && progress) {
      this.bar.value = progress.total ? progress.done / progress.total : 0;
      text = `${phase}: ${number(progress.done)} of ${number(progress.total)} ${progress.unit}`;
      if (progress.eta_s) text += `, ${duration(progress.eta_s)} left`;
    }
    const losses = this.lossesByStep();
    if (losses.length) text += `${text ? " · " : ""}loss ${losses.at(-1).toPrecision(4)}`;
    const { health, silent_since: silent } = this.job;
    if (silent) text += `${text ? " · " : ""}silent since ${new Date(silent).toLocaleTimeString()}`;
    if (health?.reason) text += `${text ? " · " : ""}${health.state}: ${health.reason}`;
    this.curve.draw(losses);
    this.detail.textContent = text;
  }

  lossesByStep() {
    return [...this.losses].sort(([one], [other]) => one - other).map(([, loss]) => loss).filter((loss) => loss !== null);
  }

  async loadLosses() {
    const { series } = await get(`/v1/jobs/${this.id}/metrics?names=loss&max_points=300`);
    for (const { steps, values } of series) steps.forEach((step, position) => this.losses.set(step, values[position]));
    this.drawProgress(this.job.phase, this.job.progress);
  }

  async watch() {
    await follow(`/v1/jobs/${this.id}/events`, 0, this.stop.signal, ({ type, data }) => {
      this.job.silent_since = null;
      if (type === "stage") this.job.phase = data.stage;
      if (type === "progress") this.job.progress = data.data;
      if (type === "health") this.job.health = data.data;
      if (type === "metrics" && "loss" in data.data.values) this.losses.set(data.data.step, data.data.values.loss);
      if (this.job.status === "queued" && type !== "end") this.job.status = "running";
      this.update(this.job);
    });
    if (this.stop.signal.aborted) return;
    this.update(await get(`/v1/jobs/${this.id}`));
    document.dispatchEvent(new Event("job-ended"));
  }

  async end() {
    this.update(await post(`/v1/jobs/${this.id}/cancel`));
  }
}

function reason({ where, message, remedy }) {
  return `${where ? `${where}: ` : ""}${message}.${remedy ? ` Remedy: ${remedy}.` : ""}`;
}

function took(job) {
  if (!job.started_at || !job.ended_at) return "";
  return `took ${duration((new Date(job.ended_at) - new Date(job.started_at)) / 1000)}`;
}

// A loss curve as one SVG line; decoration beside the figure in words.
function curve() {
  const namespace = "http://www.w3.org/2000/svg";
  const root = document.createElementNS(namespace, "svg");
  root.setAttribute("viewBox", "0 0 100 24");
  root.setAttribute("preserveAspectRatio", "none");
  root.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(namespace, "polyline");
  root.append(line);
  return {
    root,
    draw(values) {
      root.style.display = values.length > 1 ? "" : "none";
      const low = Math.min(...values);
      const span = Math.max(...values) - low || 1;
      const points = values.map((value, step) => {
        const x = (100 * step) / (values.length - 1);
        return `${x.toFixed(2)},${(23 - (22 * (value - low)) / span).toFixed(2)}`;
      });
      line.setAttribute("points", points.join(" "));
    },
  };
}

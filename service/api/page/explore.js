// Ask an embedding set about a node: whom it is like, or its vector.

import { get, post } from "./api.js";
import { element } from "./dom.js";

const form = document.getElementById("explore");
const ref = document.getElementById("ref");
const node = document.getElementById("node");
const k = document.getElementById("k");
const strangers = document.getElementById("strangers");
const answer = document.getElementById("answer");

const HOW = {
  exact: "exact search",
  exact_no_index: "exact search, the set has no index yet",
  exact_fallback: "exact search, the index could not return enough",
  exact_filtered: "exact search of the nodes that match",
  hnsw: "HNSW index",
  hnsw_filtered: "HNSW index, and the filter",
  ivf: "IVF index",
  ivf_filtered: "IVF index, and the filter",
};

// Fill the choice of sets, keeping what is chosen.
export function offerSets(sets, graphs) {
  const chosen = ref.value;
  const options = sets.map((set) => {
    const name = set.aliases[0] ?? set.id;
    return element("option", { value: name }, `${name} (${graphs.get(set.graph) ?? set.graph})`);
  });
  ref.replaceChildren(...options);
  if (options.some((option) => option.value === chosen)) ref.value = chosen;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  ask(event.submitter?.value === "vector" ? showVector : showNeighbors);
});

async function ask(question) {
  answer.setAttribute("aria-busy", "true");
  try {
    answer.replaceChildren(await question(encodeURIComponent(ref.value), node.value.trim()));
  } catch (error) {
    answer.replaceChildren(element("p", { class: "error" }, error.message));
  }
  answer.removeAttribute("aria-busy");
}

async function showNeighbors(set, id) {
  const { answers } = await post(`/v1/embeddings/${set}/neighbors`, {
    queries: [{ id }],
    k: Number(k.value),
    exclude: { connected: strangers.checked },
  });
  const [found] = answers;
  const rows = found.results.map((result) => {
    const go = element("button", { type: "button", class: "link" }, result.id);
    go.addEventListener("click", () => {
      node.value = result.id;
      form.requestSubmit();
    });
    const edge = result.connected === null ? "" : result.connected ? "yes" : "no";
    return element("tr", {},
      element("td", {}, go),
      element("td", { class: "figure" }, result.score.toFixed(4)),
      element("td", {}, edge));
  });
  const short = found.complete ? "" : `; only ${found.returned} nodes may be returned`;
  const head = ["node", "cosine", "edge"].map((name) => element("th", { scope: "col" }, name));
  return element("table", {},
    element("caption", {}, `Nearest to ${id} (${HOW[found.strategy]}${short})`),
    element("thead", {}, element("tr", {}, ...head)),
    element("tbody", {}, ...rows));
}

async function showVector(set, id) {
  const { vector, dim } = await get(`/v1/embeddings/${set}/vectors/${encodeURIComponent(id)}`);
  const text = vector.map((value) => value.toFixed(4)).join("  ");
  return element("figure", {},
    element("figcaption", {}, `Vector of ${id}, ${dim} numbers`),
    element("pre", { tabindex: "0" }, text));
}

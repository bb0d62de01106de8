// Embedding sets and graphs: a card each, with the figures that tell whether a set is any good.

import { get } from "./api.js";
import { element, number, show } from "./dom.js";
import { offerSets } from "./explore.js";

const OBJECTIVES = { rgrl: "RGRL", bgrl: "BGRL", grace: "GRACE", gca: "GCA", cca_ssg: "CCA-SSG", dgi: "DGI" };
const PROBED = {
  raw_features: "raw features",
  ppr_smoothed: "PPR-smoothed",
  random_encoder: "random encoder",
  ...OBJECTIVES,
};

export async function refreshSets() {
  const [sets, graphs] = await Promise.all([get("/v1/embeddings?limit=20"), get("/v1/graphs?limit=20")]);
  const names = new Map(graphs.items.map((graph) => [graph.id, graph.name ?? graph.id]));
  document.getElementById("sets").replaceChildren(...sets.items.map((set) => setCard(set, names.get(set.graph))));
  document.getElementById("graphs").replaceChildren(...graphs.items.map(graphCard));
  show("sets-empty", sets.items.length === 0);
  show("graphs-empty", graphs.items.length === 0);
  offerSets(sets.items, names);
}

function setCard(set, graph) {
  const title = set.aliases.length ? set.aliases.join(", ") : set.id;
  const chip = set.aliases.length ? element("span", { class: "chip" }, "alias") : "";
  const facts = [
    [`${number(set.counts.nodes)} × ${set.counts.dim}`, "nodes × dimensions"],
    [graph ?? set.graph, "graph"],
  ];
  if (set.report) facts.push([`${set.report.effective_rank.toFixed(1)} of ${set.counts.dim}`, "effective rank"]);
  const recall = set.index?.recall;
  if (recall) facts.push([recall.value.toFixed(4), `recall@${recall.k}, ${set.index.index} index`]);
  const list = element("dl", {}, ...facts.map(([value, name]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  return element("li", { class: "card" },
    element("div", { class: "head" }, element("h3", {}, title), chip),
    list,
    accuracies(set.report?.test_accuracy),
    element("p", { class: "detail id" }, set.id));
}

function accuracies(found) {
  if (!found) return "";
  const rows = Object.entries(PROBED)
    .filter(([name]) => found[name] != null)
    .map(([name, label]) => element("tr", { class: name in OBJECTIVES ? "ours" : "" },
      element("th", { scope: "row" }, label),
      element("td", { class: "bar" }, element("meter", { min: "0", max: "1", value: String(found[name]) })),
      element("td", { class: "figure" }, `${(100 * found[name]).toFixed(2)} %`)));
  return element("table", {}, element("caption", {}, "Test accuracy of a linear probe"), element("tbody", {}, ...rows));
}

function graphCard(graph) {
  const counts = graph.counts
    ? `${number(graph.counts.nodes)} nodes, ${number(graph.counts.edges)} edges`
    : "not ingested yet";
  return element("li", { class: "card" },
    element("div", { class: "head" },
      element("h3", {}, graph.name ?? graph.id),
      element("span", { class: "chip", "data-status": graph.state }, graph.state)),
    element("p", { class: "detail" }, `${counts}, ${graph.direction}`),
    element("p", { class: "detail id" }, graph.id));
}

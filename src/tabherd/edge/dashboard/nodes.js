// The nodes that share a store: how each is and what it has; and for admins, draining one and taking that back.

import { post, remove } from "./api.js";
import { act } from "./dialog.js";
import { h } from "./dom.js";
import { ago, badge, brief, count, duration, id } from "./format.js";
import { shown } from "./states.js";
import { Table } from "./table.js";

export const title = "Nodes";

export function page({ me, store }) {
  const table = new Table({
    label: "Nodes",
    key: (node) => node.nodeId,
    rowHeight: 44,
    columns: [
      { name: "id", title: "Node", cell: (node) => [brief(node.nodeId), node.isSelf && h("span", { class: "quiet" }, " (this)")], sort: (node) => node.nodeId, width: "minmax(10rem, 1.2fr)", smallWidth: "minmax(0, 1fr)" },
      { name: "state", title: "State", cell: (node) => badge(node.state), sort: (node) => node.state, width: "6.5rem", smallWidth: "5.2rem" },
      { name: "url", title: "Address", cell: (node) => h("span", { title: node.url }, node.url || "–"), sort: (node) => node.url, width: "minmax(8rem, 1.2fr)", isWideOnly: true },
      { name: "sessions", title: "Sessions", cell: (node) => count(node.sessions), sort: (node) => node.sessions, width: "5rem", isNumber: true, isWideOnly: true },
      { name: "seats", title: "Free seats", cell: (node) => count(node.freeSeats), sort: (node) => node.freeSeats, width: "5.5rem", isNumber: true, isWideOnly: true },
      { name: "beat", title: "Heard of", cell: heard, sort: (node) => node.beatAgeMs ?? -1, width: "6.5rem", isNumber: true, isWideOnly: true },
      { name: "age", title: "Runs for", cell: (node) => ago(node.startedAt), sort: (node) => node.startedAt, width: "6rem", isNumber: true, isWideOnly: true },
      me.isAdmin && { name: "act", title: "", cell: button, width: "6.5rem", smallWidth: "5.6rem" },
    ].filter(Boolean),
  });

  function view() {
    return [
      h("header", { key: "head" }, h("h1", null, "Nodes"), h("span", { class: "quiet" }, summary(store.of("nodes").data || []))),
      shown(store.of("nodes"), "The list of nodes", (nodes) => (isAlone(nodes) ? alone(nodes[0]) : list(nodes))),
    ];
  }

  const list = (nodes) =>
    h("div", { class: "fit", key: "list", style: { "--height": `${nodes.length * table.rowHeight}px` } }, table.view(nodes));

  // The usual case: it is told as what it is, and what more there could be.
  function alone(node) {
    return h("section", { class: "card alone", key: "alone", "data-node": node.nodeId },
      h("div", { class: "bar" }, h("h2", null, "One node, all by itself"), badge(node.state), h("span", { class: "spacer" }), me.isAdmin && button(node)),
      node.state === "draining" && h("p", { class: "notice busy", role: "status" }, drained(node)),
      h("dl", { class: "facts" },
        h("dt", null, "Node"), h("dd", null, id(node.nodeId)),
        h("dt", null, "Sessions"), h("dd", null, `${count(node.sessions)} open, room for ${count(node.freeSeats)} more at once`),
        h("dt", null, "Runs for"), h("dd", null, ago(node.startedAt))),
      h("p", null, "When one machine is not enough, start tabherd on another with the same PostgreSQL. They find each other, share one queue, and each sees the sessions of all:"),
      h("pre", null, "TABHERD_STORE=postgresql://tabherd:PASSWORD@db.internal/tabherd \\\n  tabherd up --host 0.0.0.0"));
  }

  function button(node) {
    if (node.state === "up") return h("button", { class: "danger small", "data-act": "drain", onclick: () => drain(node) }, "Drain…");
    if (node.state === "draining") return h("button", { class: "small", "data-act": "resume", onclick: () => resume(node) }, "Resume…");
    return null;
  }

  // --- What can be done ---------------------------------------------------------------------------------------

  const called = (node) => (node.isSelf ? "this node" : node.nodeId);
  const query = (node) => ({ node: node.nodeId });

  async function drain(node) {
    await act({
      title: `Drain ${called(node)}?`,
      body: `It admits no new session, and whoever waits for one here is turned away. ${node.sessions ? `Its ${node.sessions} open ${node.sessions === 1 ? "session goes" : "sessions go"} on.` : "No session is open on it."} You can take it back.`,
      verb: "Drain",
    }, () => post("/drain", undefined, query(node)), `${node.nodeId} is draining.`);
    store.refresh("nodes");
  }

  async function resume(node) {
    await act({
      title: `Resume ${called(node)}?`, body: "It admits sessions again.", verb: "Resume", isDangerous: false,
    }, () => remove("/drain", query(node)), `${node.nodeId} admits sessions again.`);
    store.refresh("nodes");
  }

  const keys = me.isAdmin ? {
    d: { title: "drain the selected node", run: () => chosen()?.state === "up" && drain(chosen()) },
    r: { title: "resume the selected node", run: () => chosen()?.state === "draining" && resume(chosen()) },
  } : {};

  function chosen() {
    const nodes = store.of("nodes").data || [];
    return isAlone(nodes) ? nodes[0] : table.selected;
  }

  return { watch: ["nodes"], view, keys };
}

// A node that has no others knows of no beats.
const isAlone = (nodes) => nodes.length === 1 && nodes[0].beatAgeMs === null;
const heard = (node) => (node.beatAgeMs === null ? "–" : `${duration(node.beatAgeMs)} ago`);

function drained(node) {
  return node.sessions
    ? `It admits no new session. ${count(node.sessions)} still open; when the last has ended it can be stopped without harm to anybody.`
    : "It admits no new session, and none is open: it can be stopped without harm to anybody.";
}

function summary(nodes) {
  if (nodes.length < 2) return "";
  return `${nodes.filter((node) => node.state === "up").length} of ${nodes.length} up`;
}

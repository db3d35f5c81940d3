// What happens, as it happens, newest first; it can be stopped for a closer look, and nothing is lost meanwhile.

import { copyButton } from "./copy.js";
import { show } from "./dialog.js";
import { h } from "./dom.js";
import { Filters } from "./filters.js";
import { count } from "./format.js";
import { empty } from "./states.js";
import { Table } from "./table.js";
import { pretty } from "./value.js";

export const title = "Events";

// The kinds of events, and what their types begin with.
const KINDS = {
  session: /^session/, tab: /^tab\./, "tab lock": /^lock_/, task: /^task\./, "named lock": /^lock\./, browser: /^browser\./,
  webhook: /^webhook\./, node: /^node\./, settings: /^config_/, reset: /^reset$/,
};
const MOODS = [
  [/(crashed|dead|lost|failed|rejected|refused|quarantined|reset)$/, "bad"],
  [/(recovering|expiring|conflict|expired|draining|paused|queued|assigned|running|download)$/, "busy"],
  [/(opened|ready|recovered|resumed|rebuilt|acquired|renewed|done|delivered|reloaded)$/, "good"],
];
const NOT_SUBJECT = new Set(["id", "type", "at", "agentId"]);
const RESET = "Events were missed: this window was away for longer than the server keeps them, or the server was started anew. What the pages show was read afresh; what follows comes without a gap.";
const SUBJECTS = ["taskId", "tabId", "sessionId", "browserId", "nodeId", "name"];
const small = matchMedia("(max-width: 720px)");

export function page({ query, me, store, update }) {
  const filters = new Filters(query, { kind: "", agent: "", text: "" }, update);
  // What was there when it was stopped, and how much had been seen then; null while it runs.
  let stopped = null;

  const table = new Table({
    label: "Events",
    key: (event) => event.number,
    open: details,
    columns: [
      { name: "at", title: "Time", cell: (event) => h("time", { datetime: event.at, title: event.at }, moment(event.at)), width: "6.4rem", smallWidth: "5.2rem" },
      { name: "type", title: "Type", cell: kind, width: "minmax(9rem, .7fr)", smallWidth: "minmax(0, 1fr)" },
      { name: "agent", title: "Agent", cell: (event) => event.agentId || h("span", { class: "quiet" }, "–"), width: "minmax(4rem, .5fr)", isWideOnly: true },
      { name: "subject", title: "About", cell: (event) => subject(event), width: "minmax(8rem, 1fr)", isWideOnly: true },
      { name: "rest", title: "What it says", cell: (event) => h("span", { title: said(event) }, said(event)), width: "minmax(8rem, 1.5fr)", isWideOnly: true },
    ],
  });

  // Numbered from the first one of this window, so that each keeps its row while others come and go.
  function known() {
    const first = store.eventsSeen - store.events.length;
    return store.events.map((event, index) => ({ ...event, number: first + index }));
  }

  function view() {
    table.rowHeight = small.matches ? 54 : 38;
    const all = stopped ? stopped.events : known();
    const found = all.filter(fits).reverse();
    const missed = stopped ? store.eventsSeen - stopped.seen : 0;
    return [
      h("header", { key: "head" },
        h("h1", null, "Events"),
        h("span", { class: "quiet" }, filters.isSet ? `${count(found.length)} of ${count(all.length)}` : `${count(all.length)} since this window was opened${store.eventsSeen > all.length && !stopped ? `, the last of ${count(store.eventsSeen)}` : ""}`),
        h("span", { class: "spacer" }),
        h("button", { class: stopped ? "" : "plain", "aria-pressed": String(stopped !== null), onclick: toggle }, stopped ? "Go on" : "Pause")),
      stopped && h("p", { class: "notice busy", key: "paused", role: "status", "data-paused": "" },
        missed === 0 ? "Paused. Nothing has come since." : `Paused. ${count(missed)} ${missed === 1 ? "event has" : "events have"} come since.`),
      h("div", { class: "bar", key: "filters" },
        filters.text("text", "Find id, type, reason"),
        filters.choice("kind", "Kind", [["", "Every kind"], ...Object.keys(KINDS).map((name) => [name, name])]),
        me.isAdmin && filters.choice("agent", "Agent", [["", "Every agent"], ...agents(all).map((agentId) => [agentId, agentId])]),
        filters.clearing()),
      table.view(found, nothing(all)),
    ];
  }

  function nothing(all) {
    if (all.length > 0) return empty("No event fits", "Of those that came since this window was opened.", h("button", { class: "plain", onclick: () => filters.clear() }, "Clear filters"));
    return empty("Nothing has happened since this window was opened", "Events come here as they happen. Make one:", h("code", null, "tabherd session new --agent NAME"));
  }

  function fits(event) {
    const { kind: wanted, agent } = filters.values;
    const text = filters.values.text.trim().toLowerCase();
    if (wanted && !KINDS[wanted]?.test(event.type)) return false;
    if (agent && event.agentId !== agent) return false;
    return !text || pretty(event).toLowerCase().includes(text);
  }

  const agents = (all) => [...new Set(all.map((event) => event.agentId).filter(Boolean))].sort();

  function toggle() {
    stopped = stopped ? null : { events: known(), seen: store.eventsSeen };
    update();
  }

  function kind(event) {
    return [
      h("span", { class: `badge ${MOODS.find(([pattern]) => pattern.test(event.type))?.[1] || "quiet"}` }, event.type),
      small.matches && h("small", { class: "cut quiet" }, [event.agentId, said(event)].filter(Boolean).join(" · ")),
    ];
  }

  return {
    watch: [],
    view,
    keys: { p: { title: "pause, or go on", run: toggle } },
  };
}

function subject(event, onclick = null) {
  const name = SUBJECTS.find((one) => event[one]);
  if (!name) return h("span", { class: "quiet" }, "–");
  const page = { taskId: "tasks", tabId: "tabs" }[name];
  const text = h("code", { class: "id", title: `${name} ${event[name]}` }, String(event[name]));
  return page ? h("a", { href: `#/${page}/${encodeURIComponent(event[name])}`, onclick }, text) : text;
}

// The fields that have no column of their own.
function said(event) {
  if (event.type === "reset") return RESET;
  const about = SUBJECTS.find((name) => event[name]);
  return Object.entries(event)
    .filter(([name, value]) => !NOT_SUBJECT.has(name) && name !== about && name !== "number" && value !== null)
    .map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ");
}

function details(event) {
  const { number, ...told } = event;
  const close = show(event.type, h("div", { class: "event" },
    event.type === "reset" && h("p", null, RESET),
    h("pre", null, pretty(told)),
    h("div", { class: "bar" }, subject(event, () => close()), copyButton(pretty(told), "the event"))));
}

function moment(at) {
  const time = new Date(at);
  const clock = time.toLocaleTimeString("en-GB", { hour12: false });
  return small.matches ? clock : `${clock}.${String(time.getMilliseconds()).padStart(3, "0")}`;
}

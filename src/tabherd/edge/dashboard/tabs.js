// The board of tabs: who holds what since when, who waits behind it, and above all which ones want a look.

import { giveBack, handOff, isMine, releaseSession } from "./acts.js";
import { h } from "./dom.js";
import { Filters } from "./filters.js";
import { ago, badge, brief, count, duration } from "./format.js";
import { empty, shown } from "./states.js";
import { Table } from "./table.js";
import { byTrouble, heldMs, holderOf, hostOf, isBroken, line, nameOf, pathOf, situation, spoken, turnMs, two, urgency } from "./tab-words.js";

export const title = "Tabs";

const STATES = ["opening", "ready", "quarantined", "paused", "dead", "rebuilding", "closing"];
// What can be asked for beside a state: its name in the address, its words, what it lets through.
const KINDS = [
  ["waiters", "with waiters", (tab) => tab.waiters.length > 0],
  ["held", "held", (tab) => tab.holder !== null],
  ["quarantined", "quarantined or dead", isBroken],
  ["handoff", "handed off", (tab) => tab.holder?.reason === "handoff"],
];
// So many are told about above the table.
const TOLD_MAX = 3;

export function page({ query, me, store, update, go }) {
  const filters = new Filters(query, { text: "", state: "", only: "" }, update);
  const tabs = () => store.of("tabs").data || [];
  const open = (tab) => go(pathOf(tab.tabId));

  const table = new Table({
    label: "Tabs",
    key: (tab) => tab.tabId,
    open,
    rowHeight: 52,
    columns: [
      { name: "page", title: "Page", cell: (tab) => two(nameOf(tab), hostOf(tab.url)), sort: (tab) => nameOf(tab).toLowerCase(), width: "minmax(9rem, 1.6fr)", smallWidth: "minmax(0, 1.2fr)" },
      { name: "agent", title: "Agent", cell: (tab) => two(tab.agentId, brief(tab.sessionId)), sort: (tab) => tab.agentId, width: "minmax(7rem, 1fr)", isWideOnly: true },
      { name: "state", title: "State", cell: (tab) => badge(tab.state), sort: (tab) => tab.state, width: "6.5rem", isWideOnly: true },
      { name: "holder", title: "Held by", cell: holder, sort: (tab) => (tab.holder ? holderOf(tab) : ""), width: "minmax(9rem, 1.4fr)", smallWidth: "minmax(0, 1fr)" },
      { name: "held", title: "For", cell: (tab) => tab.holder ? ago(tab.holder.since) : free(), sort: heldMs, width: "5rem", smallWidth: "3.4rem", isNumber: true },
      { name: "waiters", title: "Waiting", cell: waiters, sort: (tab) => tab.waiters.length, width: "minmax(6rem, 1.2fr)", smallWidth: "3.6rem" },
      { name: "wait", title: "Next turn", cell: nextTurn, sort: (tab) => turnMs(tab) || 0, width: "5rem", isNumber: true, isWideOnly: true },
    ],
  });

  function view() {
    return [
      h("header", { key: "head" },
        h("h1", null, "Tabs"),
        filters.text("text", "Filter by page, agent, id"),
        filters.choice("state", "State", [["", "any state"], ...STATES.map((state) => [state, state])]),
        filters.choice("only", "Only", [["", "all tabs"], ...KINDS.map(([name, words]) => [name, words])]),
        filters.clearing(),
        h("span", { class: "quiet small", role: "status" }, summary(tabs()))),
      shown(store.of("tabs"), "The board of tabs", (all) => all.length === 0 ? nothing() : [
        trouble(all),
        table.view(byTrouble(all.filter(isWanted)), empty("No tab is like that", "Other filters may show some.", filters.clearing())),
      ]),
    ];
  }

  const nothing = () => empty("No tab is open", "A tab appears here with the first session. Try one:",
    h("pre", null, "tabherd session new --url https://example.org"));

  function isWanted(tab) {
    const { text, state, only } = filters.values;
    if (state && tab.state !== state) return false;
    const kind = KINDS.find(([name]) => name === only);
    if (kind && !kind[2](tab)) return false;
    const words = `${tab.title} ${tab.url} ${tab.agentId} ${tab.tabId} ${tab.sessionId} ${tab.holder ? holderOf(tab) : ""}`;
    return !text || words.toLowerCase().includes(text.trim().toLowerCase());
  }

  // --- What wants a look --------------------------------------------------------------------------------------

  function trouble(all) {
    const found = byTrouble(all.filter(urgency));
    if (found.length === 0) return null;
    return h("section", { class: "cards looks", key: "looks", "aria-label": "Tabs that want a look" },
      found.slice(0, TOLD_MAX).map((tab) =>
        h("article", { class: `card look ${urgency(tab)}`, key: tab.tabId, "data-look": tab.tabId },
          h("h2", null, badge(...mark(tab)),
            h("a", { href: `#${pathOf(tab.tabId)}` }, nameOf(tab)), h("span", { class: "quiet small" }, tab.agentId)),
          h("p", { class: "small" }, situation(tab)),
          tab.waiters.length > 0 && h("p", { class: "small" }, h("b", null, "Waiting: "), line(tab.waiters)))),
      found.length > TOLD_MAX && h("p", { class: "quiet small rest" }, `${count(found.length - TOLD_MAX)} more want a look: they come first in the table.`));
  }

  // --- What can be done ---------------------------------------------------------------------------------------

  // On the row that has the selection; nothing for what is not one's own.
  const onSelected = (run) => () => {
    const tab = table.selected;
    if (tab && isMine(me, tab)) run(tab);
  };
  const sessionTabs = (tab) => tabs().filter((one) => one.sessionId === tab.sessionId);
  const then = async (doing) => (await doing) && store.refresh("tabs");
  const keys = {
    w: { title: "watch the selected tab", run: () => table.selected && go(`${pathOf(table.selected.tabId)}/live`) },
    h: { title: "hand off the selected tab, or give it back", run: onSelected((tab) => then(tab.state === "paused" ? giveBack(tab) : handOff(tab))) },
    x: { title: "release the session of the selected tab", run: onSelected((tab) => then(releaseSession(tab, sessionTabs(tab)))) },
  };

  return { watch: ["tabs"], view, keys };
}

// What is the matter with it, in a word or two.
function mark(tab) {
  if (isBroken(tab) || tab.state === "rebuilding") return [tab.state, urgency(tab)];
  return tab.waiters.length ? [`${tab.waiters.length} ${tab.waiters.length === 1 ? "waits" : "wait"}`, urgency(tab)] : [tab.holder.reason, urgency(tab)];
}

const free = () => h("span", { class: "quiet" }, "–");

function holder(tab) {
  if (!tab.holder) return h("span", { class: "quiet" }, "free");
  const { reason, kind } = tab.holder;
  return two([badge(reason), kind && ` ${spoken(kind)}`], holderOf(tab));
}

function nextTurn(tab) {
  const ms = turnMs(tab);
  return ms === null ? h("span", { class: "quiet" }, "unknown") : ms ? duration(ms) : free();
}

function waiters(tab) {
  if (tab.waiters.length === 0) return free();
  return two(h("b", null, `${tab.waiters.length}`), h("span", { class: "wide-only", title: line(tab.waiters, 20) }, line(tab.waiters, 2)));
}

function summary(tabs) {
  if (tabs.length === 0) return "";
  const held = tabs.filter((tab) => tab.holder).length;
  const waiting = tabs.reduce((sum, tab) => sum + tab.waiters.length, 0);
  return `${count(tabs.length)} ${tabs.length === 1 ? "tab" : "tabs"}, ${count(held)} held, ${waiting === 0 ? "nobody waits" : `${count(waiting)} ${waiting === 1 ? "waits" : "wait"}`}`;
}

// One tab, whole: its page, who has it and why, who waits in which order, its session, what happened, what can be done.

import { cancelCommand, closeTab, freeTabLock, giveBack, handOff, isMine, releaseSession } from "./acts.js";
import { get } from "./api.js";
import { h } from "./dom.js";
import { ago, badge, clock, count, duration, id, within } from "./format.js";
import { Reading } from "./reading.js";
import { empty, shown } from "./states.js";
import { holderOf, hostOf, nameOf, partyOf, pathOf, situation, spoken, turnMs, urgency } from "./tab-words.js";

export const title = "Tab";

const LOOK_MS = 1_500;
const AUDIT_MS = 6_000;
const EVENTS_SHOWN = 12;
const AUDIT_SHOWN = 15;
// Of an event, what the page tells already.
const KNOWN = new Set(["type", "id", "at", "tabId", "sessionId", "agentId", "node", "ticket"]);

export function page({ params, me, store, update, go }) {
  const { tabId } = params;
  const reading = new Reading({ ask: () => get(pathOf(tabId)), everyMs: LOOK_MS, store, update });
  // Who did what to it, newest first; for admins.
  const trail = new Reading({ ask: () => get("/audit", { tabId, order: "desc", limit: AUDIT_SHOWN }), everyMs: AUDIT_MS, store, update });
  const isAboutIt = (event) => event.tabId === tabId || (event.sessionId && event.sessionId === reading.data?.sessionId);
  const forget = store.listen((event) => (event.type === "reset" || isAboutIt(event)) && reading.soon());
  reading.look();
  if (me.isAdmin) trail.look();

  const session = () => (store.of("sessions").data || []).find((one) => one.sessionId === reading.data?.sessionId);

  function view() {
    // A session that has ended takes its tabs with it, whatever was known of them.
    if (reading.state === "missing" || reading.error?.code === "lease_lost") return gone();
    return shown(reading, "This tab", (tab) => {
      document.title = `${nameOf(tab)} · tabherd`;
      return [
        h("header", { key: "head" },
          h("a", { href: "#/tabs", class: "quiet" }, "Tabs ›"),
          h("h1", { class: "tab-name" }, nameOf(tab)), badge(tab.state), h("span", { class: "quiet" }, tab.agentId),
          h("span", { class: "spacer" }), buttons(tab)),
        h("div", { class: "columns", key: "columns" },
          h("div", null, holder(tab), waiters(tab), events(), me.isAdmin && audit()),
          h("div", null, thePage(tab), theSession(tab))),
      ];
    });
  }

  const gone = () => empty("This tab is gone", reading.error.message,
    h("p", null, id(tabId)),
    h("p", { class: "buttons" }, h("a", { class: "button plain", href: "#/tabs" }, "All tabs"), me.isAdmin && h("a", { class: "button plain", href: `#/audit?tab=${encodeURIComponent(tabId)}` }, "What was done to it")));

  // --- Who has it ---------------------------------------------------------------------------------------------

  function holder(tab) {
    const { holder: held } = tab;
    return h("section", { class: `card look ${urgency(tab)}`, key: "holder", "aria-labelledby": "holder" },
      h("h2", { id: "holder" }, "Who has it ", held ? badge(held.reason) : badge("free")),
      h("p", { "data-situation": held?.reason || "free" }, situation(tab)),
      held && h("dl", { class: "facts" },
        held.controllerId && fact(held.reason === "handoff" ? "Person" : "Controller", h("span", { title: held.controllerId }, holderOf(tab))),
        fact("Since", [ago(held.since), h("span", { class: "quiet" }, ` (${clock(held.since)})`)]),
        held.kind && fact("Command", [spoken(held.kind), " ", id(held.commandId)])));
  }

  function waiters(tab) {
    const { waiters: all } = tab;
    return h("section", { class: "card", key: "waiters", "aria-labelledby": "waiters" },
      h("h2", { id: "waiters" }, "Who waits ", all.length > 0 && badge(`${all.length}`, "busy")),
      all.length === 0
        ? h("p", { class: "quiet" }, "Nobody.")
        : h("div", { class: "scroll-x" }, h("table", { class: "plain-table" },
          heads("", "Agent", "For", "Wants to"),
          h("tbody", null, all.map((waiter) =>
            h("tr", { key: `${waiter.controllerId}${waiter.since}${waiter.position}`, "data-position": waiter.position },
              h("td", { class: "number" }, `${waiter.position}`),
              h("td", { title: waiter.controllerId }, partyOf(waiter)),
              h("td", { class: "id" }, ago(waiter.since)),
              h("td", null, waiter.kind === "tab_lock" ? "lock the tab" : spoken(waiter.kind))))))),
      h("p", { class: "quiet small" }, newcomer(tab)));
  }

  // --- What it is ---------------------------------------------------------------------------------------------

  function thePage(tab) {
    return h("section", { class: "card", key: "page", "aria-labelledby": "the-page" },
      h("h2", { id: "the-page" }, "Page"),
      h("dl", { class: "facts" },
        fact("Title", tab.title || h("span", { class: "quiet" }, "none")),
        fact("Address", [h("b", null, hostOf(tab.url)), h("br"), h("span", { class: "quiet small" }, tab.url)]),
        fact("Tab", id(tab.tabId)),
        fact("Came to be", [{ created: "opened by its session", popup: "opened by a page", borrowed: "borrowed from the browser's user" }[tab.provenance] || tab.provenance, ", ", ago(tab.createdAt), " ago"]),
        tab.openerTabId && fact("Opened from", h("a", { href: `#${pathOf(tab.openerTabId)}` }, id(tab.openerTabId))),
        fact("Generation", tab.generation === 1 ? "1, the first page" : `${tab.generation}: the page behind it was replaced ${tab.generation - 1} ${tab.generation === 2 ? "time" : "times"}`)));
  }

  function theSession(tab) {
    const facts = session();
    return h("section", { class: "card", key: "session", "aria-labelledby": "the-session" },
      h("h2", { id: "the-session" }, h("a", { href: `#/sessions?session=${encodeURIComponent(tab.sessionId)}` }, "Session")),
      h("dl", { class: "facts" },
        fact("Session", id(tab.sessionId)), fact("Agent", tab.agentId),
        facts && [
          fact("State", badge(facts.state)), fact("Fence", count(facts.fence)),
          fact("Pool", facts.pool), facts.key && fact("Key", facts.key), fact("Tier", facts.tier),
          fact("Deadline", within(facts.expiresAt)),
          fact("Owner seen", [ago(facts.seenAt), " ago"]),
          fact("Ends by itself", facts.keepAlive ? "only at its deadline (keepAlive)" : "when its owner is gone"),
          fact("Access", facts.access === "shared" ? "shared: any agent may use it, in turn" : "only its agent"),
          fact("Tabs", count(facts.tabs.length)), fact("Browser", id(facts.browserId)), fact("Node", id(facts.node)),
        ]));
  }

  // --- What happened ------------------------------------------------------------------------------------------

  function events() {
    const found = store.events.filter(isAboutIt).slice(-EVENTS_SHOWN).reverse();
    return h("section", { class: "card", key: "events", "aria-labelledby": "events" },
      h("h2", { id: "events" }, "What happened"),
      found.length === 0
        ? h("p", { class: "quiet" }, "Nothing since the dashboard was opened. Commands that pass are no events.")
        : h("ul", { class: "plain-list events" }, found.map((event) =>
          h("li", { key: `${event.id}${event.type}` }, h("time", { class: "quiet small", datetime: event.at }, clock(event.at)), " ", h("b", null, event.type), " ", h("span", { class: "quiet small" }, details(event))))));
  }

  function audit() {
    return h("section", { class: "card", key: "audit", "aria-labelledby": "audit" },
      h("h2", { id: "audit" }, h("a", { href: `#/audit?tab=${encodeURIComponent(tabId)}` }, "Who did what")),
      shown(trail, "The audit trail", ({ entries }) => entries.length === 0
        ? h("p", { class: "quiet" }, "Nothing yet.")
        : h("div", { class: "scroll-x" }, h("table", { class: "plain-table small" },
          heads("At", "Agent", "Did", ""),
          h("tbody", null, entries.map((entry) =>
            h("tr", { key: entry.id }, h("td", { class: "quiet" }, clock(entry.at)), h("td", null, entry.agentId), h("td", null, spoken(entry.verb)), h("td", { class: "quiet" }, entry.detail))))))));
  }

  // --- What can be done ---------------------------------------------------------------------------------------

  const known = () => (reading.data && isMine(me, reading.data) ? reading.data : null);
  const isPaused = (tab) => tab.state === "paused";
  const runs = (tab) => Boolean(tab.holder?.commandId);
  const isLocked = (tab) => tab.holder?.reason === "tab_lock";
  const release = (tab) => releaseSession({ ...tab, fence: session()?.fence }, (store.of("tabs").data || [tab]).filter((one) => one.sessionId === tab.sessionId));

  async function then(doing) {
    if (!(await doing)) return;
    reading.soon();
    store.refresh();
    if (me.isAdmin) trail.soon();
  }

  // key: [title, whether it can be done now, what to do, words of its button, class]
  const ACTS = {
    h: ["hand the tab off, or give it back", (tab) => ["ready", "paused"].includes(tab.state), (tab) => (isPaused(tab) ? giveBack(tab) : handOff(tab)), (tab) => (isPaused(tab) ? "Give back…" : "Hand off…"), ""],
    c: ["cancel the command that runs", runs, cancelCommand, () => "Cancel command…", "plain"],
    u: ["free the tab lock by force", (tab) => me.isAdmin && isLocked(tab), freeTabLock, () => "Free lock…", "plain"],
    d: ["close the tab", (tab) => tab.state !== "closing", closeTab, () => "Close tab…", "plain"],
    x: ["release the session", () => true, release, () => "Release session…", "danger"],
  };

  function buttons(tab) {
    return h("div", { class: "buttons" },
      h("a", { class: "button plain", href: `#${pathOf(tabId)}/live` }, "Watch"),
      known() && Object.entries(ACTS).map(([key, [words, can, run, name, look]]) =>
        can(tab) && h("button", { key, class: look, title: `${words} (${key})`, "data-act": key, onclick: () => then(run(tab)) }, name(tab))));
  }

  const keys = {
    w: { title: "watch the tab", run: () => go(`${pathOf(tabId)}/live`) },
    ...Object.fromEntries(Object.entries(ACTS).map(([key, [words, can, run]]) => [key, { title: words, run: () => known() && can(known()) && then(run(known())) }])),
  };

  function close() {
    forget();
    reading.stop();
    trail.stop();
  }

  return { watch: ["tabs", "sessions"], view, keys, close };
}

function newcomer(tab) {
  const ms = turnMs(tab);
  if (ms === null) return tab.holder.reason === "handoff" ? "Nobody's turn comes before the tab is given back." : "When a newcomer has its turn cannot be told: the command takes longer than expected.";
  return ms ? `A newcomer may expect its turn in ${duration(ms)}.` : "A newcomer would have its turn at once.";
}

const fact = (name, value) => [h("dt", null, name), h("dd", null, value)];
const heads = (...names) => h("thead", null, h("tr", null, names.map((name) => h("th", { scope: "col" }, name))));

// What an event says beyond what is on the page already.
function details(event) {
  return Object.entries(event)
    .filter(([name, value]) => !KNOWN.has(name) && value !== null && typeof value !== "object")
    .map(([name, value]) => `${name} ${value}`)
    .join(", ");
}

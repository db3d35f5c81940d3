// Locks: named ones and who has them, tab locks of all tabs, and what the backend knows of programs of their own.

import { freeLock, freeTabLock } from "./acts.js";
import { h } from "./dom.js";
import { Filters } from "./filters.js";
import { ago, badge, count, duration, within } from "./format.js";
import { empty, shown } from "./states.js";
import { Table } from "./table.js";
import { holderOf, line, nameOf, pathOf, two } from "./tab-words.js";

export const title = "Locks";

// Whoever finds a lock busy so often in a row may be starving.
const STARVING_SKIPS = 10;

export function page({ query, me, store, update, go }) {
  const filters = new Filters(query, { text: "" }, update);
  const then = async (doing, ...names) => (await doing) && store.refresh(...names);
  const free = (words, run) => h("button", { class: "plain small", "data-act": "free", "aria-label": words, onclick: run }, "Free…");
  const isWanted = (...words) => words.join(" ").toLowerCase().includes(filters.values.text.trim().toLowerCase());

  const named = new Table({
    label: "Named locks",
    key: (lock) => lock.name,
    rowHeight: 46,
    columns: [
      { name: "name", title: "Lock", cell: (lock) => two(h("code", null, lock.name), h("span", { class: "small-only" }, lockHolder(lock))), sort: (lock) => lock.name, width: "minmax(8rem, 1.4fr)", smallWidth: "minmax(0, 1.2fr)" },
      { name: "holder", title: "Held by", cell: lockHolder, sort: (lock) => lock.holder || "", width: "minmax(7rem, 1.2fr)", isWideOnly: true },
      { name: "fence", title: "Fence", cell: (lock) => (lock.fence === null ? none() : count(lock.fence)), sort: (lock) => lock.fence || 0, width: "4rem", isNumber: true, isWideOnly: true },
      { name: "since", title: "For", cell: (lock) => ago(lock.acquiredAt), sort: (lock) => lock.acquiredAt || "", width: "4.5rem", isNumber: true, isWideOnly: true },
      { name: "expires", title: "Ends", cell: (lock) => (lock.held && !lock.expiresAt ? h("span", { class: "quiet" }, "with its connection") : within(lock.expiresAt)), sort: (lock) => lock.expiresAt || "", width: "8.5rem", isWideOnly: true },
      { name: "waiters", title: "Waiting", cell: waiting, sort: (lock) => lock.waiters, width: "5rem", smallWidth: "3.6rem", isNumber: true },
      ...(me.isAdmin ? [{ name: "act", title: "", cell: (lock) => lock.held && lock.holder && free(`Free ${lock.name}`, () => then(freeLock(lock), "locks", "advisory")), width: "4.4rem" }] : []),
    ],
  });

  const ofTabs = new Table({
    label: "Tab locks",
    key: (tab) => tab.tabId,
    open: (tab) => go(pathOf(tab.tabId)),
    rowHeight: 46,
    columns: [
      { name: "tab", title: "Tab", cell: (tab) => two(nameOf(tab), [h("span", { class: "wide-only" }, tab.agentId), h("span", { class: "small-only" }, holderOf(tab))]), sort: (tab) => nameOf(tab), width: "minmax(8rem, 1.4fr)", smallWidth: "minmax(0, 1.2fr)" },
      { name: "holder", title: "Held by", cell: holderOf, sort: holderOf, width: "minmax(7rem, 1.2fr)", isWideOnly: true },
      { name: "since", title: "For", cell: (tab) => ago(tab.holder.since), sort: (tab) => tab.holder.since, width: "4.5rem", isNumber: true, isWideOnly: true },
      { name: "expires", title: "Ends", cell: (tab) => within(tab.holder.expiresAt), sort: (tab) => tab.holder.expiresAt, width: "8.5rem", isWideOnly: true },
      { name: "waiters", title: "Waiting", cell: (tab) => (tab.waiters.length ? h("span", { title: line(tab.waiters, 20) }, badge(`${tab.waiters.length}`, "busy")) : none()), sort: (tab) => tab.waiters.length, width: "5rem", smallWidth: "3.6rem", isNumber: true },
      ...(me.isAdmin ? [{ name: "act", title: "", cell: (tab) => free(`Free the lock on ${nameOf(tab)}`, () => then(freeTabLock(tab), "tabs")), width: "4.4rem" }] : []),
    ],
  });

  const advisory = new Table({
    label: "Locks of the backend",
    key: called,
    rowHeight: 46,
    columns: [
      { name: "label", title: "Lock", cell: (lock) => two(h("code", null, called(lock)), h("span", { class: "small-only" }, process(lock))), sort: (lock) => lock.label, width: "minmax(8rem, 1.4fr)", smallWidth: "minmax(0, 1.2fr)" },
      { name: "holder", title: "Held by", cell: process, sort: (lock) => lock.holder || "", width: "minmax(7rem, 1.4fr)", isWideOnly: true },
      { name: "held", title: "For", cell: (lock) => (lock.heldMs === null ? none() : duration(lock.heldMs)), sort: (lock) => lock.heldMs || 0, width: "4.5rem", isNumber: true, isWideOnly: true },
      { name: "waiters", title: "Waiting", cell: waiting, sort: (lock) => lock.waiters, width: "5rem", smallWidth: "3.6rem", isNumber: true },
      { name: "timeouts", title: "Timeouts", cell: (lock) => count(lock.timeouts), sort: (lock) => lock.timeouts, width: "5rem", isNumber: true, isWideOnly: true },
      { name: "skips", title: "Skips", cell: skips, sort: (lock) => lock.consecutiveSkips, width: "8rem", isNumber: true, isWideOnly: true },
    ],
  });

  // --- The page -----------------------------------------------------------------------------------------------

  function view() {
    const tabLocks = (tabs) => tabs.filter((tab) => tab.holder?.reason === "tab_lock");
    return [
      h("header", { key: "head" }, h("h1", null, "Locks"), filters.text("text", "Filter by name or holder")),
      section("named", "Named locks", "Held or waited for by callers of this server, across all nodes.", "locks",
        named, (locks) => locks.filter((lock) => isWanted(lock.name, lock.holder || "")),
        empty("No named lock is held", "A lock keeps two agents from using one account at the same time:", h("pre", null, "tabherd lock run account:x -- ./work.sh"))),
      section("tab", "Tab locks", "A tab that one controller keeps across several commands.", "tabs",
        ofTabs, (tabs) => tabLocks(tabs).filter((tab) => isWanted(nameOf(tab), tab.agentId, holderOf(tab))),
        h("p", { class: "quiet" }, "No tab is locked.")),
      section("advisory", "Locks of the backend", "All that the lock backend knows, also of programs that use tabherd.locks by themselves.", "advisory",
        advisory, (locks) => locks.filter((lock) => isWanted(lock.label, lock.holder || "")),
        h("p", { class: "quiet" }, "The backend keeps no lock.")),
    ];
  }

  function section(name, words, hint, resource, table, pick, nothing) {
    return h("section", { class: "lock-list", key: name, "data-locks": name, "aria-labelledby": `${name}-locks` },
      h("div", { class: "bar" }, h("h2", { id: `${name}-locks` }, words), h("span", { class: "quiet small" }, hint)),
      shown(store.of(resource), words, (all) => {
        const rows = pick(all);
        if (rows.length === 0) return filters.values.text ? h("p", { class: "quiet" }, "None is like that.") : nothing;
        return h("div", { class: "fit", style: { "--height": `${rows.length * table.rowHeight}px` } }, table.view(rows));
      }));
  }

  return { watch: ["locks", "tabs", "advisory"], view, keys: {} };
}

// --- Cells -----------------------------------------------------------------------------------------------------

const none = () => h("span", { class: "quiet" }, "–");
// Two numbers are another lock than the name that looks like them.
const called = (lock) => (lock.namespace === null ? lock.label : `(${lock.namespace}, ${lock.key})`);
const waiting = (lock) => (lock.waiters ? badge(`${lock.waiters}`, "busy") : none());

function lockHolder(lock) {
  if (!lock.held) return h("span", { class: "quiet" }, "another program, or being handed over");
  return lock.holder || h("span", { class: "quiet" }, "another agent");
}

function process(lock) {
  if (!lock.held) return h("span", { class: "quiet" }, "free");
  const where = lock.pid ? `process ${lock.pid}${lock.host ? ` on ${lock.host}` : ""}` : "";
  return h("span", { title: where }, lock.holder || where || h("span", { class: "quiet" }, "somebody else"));
}

function skips(lock) {
  const isStarving = lock.consecutiveSkips >= STARVING_SKIPS;
  return h("span", { title: `${lock.consecutiveSkips} in a row` }, isStarving && [badge("starving", "bad"), " "], count(lock.skips));
}

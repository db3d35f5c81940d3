// The first page: is anything stuck, how much goes on, who holds what and who waits for it.

import { agentsOf } from "./agents.js";
import { Curves } from "./curves.js";
import { h } from "./dom.js";
import { ago, badge, bytes, clock, count, duration, id, since } from "./format.js";
import { empty, shown } from "./states.js";
import { ailment, findings, tabLink, verdict } from "./stuck.js";

export const title = "Overview";

const EVENTS_SHOWN = 8;
const AGENTS_SHOWN = 25;
const BROWSERS_SHOWN = 12;
const WAITERS_SHOWN = 8;
// What a mood is called, for those who do not see its colour.
const MOOD_WORDS = { good: "fine", busy: "busy", bad: "look" };
const URGENCY = { good: 0, busy: 1, bad: 2 };

export function page({ me, store, update }) {
  const curves = new Curves(update);
  const watch = ["stats", "tabs", "browsers", "nodes", "history"];
  if (me.isAdmin || me.scopes.includes("tasks")) watch.push("scheduler");
  if (me.isAdmin || me.scopes.includes("locks")) watch.push("locks");
  const of = (name) => store.of(name);

  function view() {
    curves.take(of("history").data);
    const stats = of("stats").data;
    return [
      h("header", { key: "head" }, h("h1", null, "Overview"), stats && h("span", { class: "quiet" }, summary(stats))),
      shown(of("stats"), "The overview", () => [
        health(),
        h("section", { class: "cards tiles", key: "tiles", "aria-label": "Numbers of the last ten minutes" }, tiles(stats)),
        h("div", { class: "columns", key: "columns" },
          h("div", null, pools(stats), browsers()),
          h("div", null, agents(), latest())),
      ]),
    ];
  }

  // --- Is it stuck? -------------------------------------------------------------------------------------------

  function health() {
    const found = findings({ stats: of("stats"), tabs: of("tabs"), browsers: of("browsers"), nodes: of("nodes"), isAdmin: me.isAdmin });
    const { mood, words } = verdict(found);
    return h("section", { class: `card health ${mood}`, key: "health", "data-verdict": mood, "aria-labelledby": "verdict" },
      h("h2", { id: "verdict", role: "status" }, words),
      h("dl", { class: "findings" },
        // What wants attention first and in full; the rest takes no more room than it deserves.
        [...found].sort((one, other) => URGENCY[other.mood] - URGENCY[one.mood]).map((one) =>
          h("div", { key: one.name, class: one.mood, "data-finding": one.name, "data-mood": one.mood },
            h("dt", null, badge(MOOD_WORDS[one.mood], one.mood), h("span", null, one.question)),
            h("dd", null, one.answer)))));
  }

  // --- Numbers ------------------------------------------------------------------------------------------------

  function tiles(stats) {
    const pools = Object.values(stats.pools);
    const total = (name) => pools.reduce((sum, pool) => sum + pool[name], 0);
    const oldest = pools.map((pool) => pool.waitingSince).filter(Boolean).sort()[0];
    const failures = curves.recent("commandsFailed");
    const seen = of("tabs").data;
    const held = seen && seen.filter((tab) => tab.holder).length;
    const measured = (of("browsers").data || []).filter((browser) => browser.memoryBytes !== null);
    const memory = measured.length ? measured.reduce((sum, browser) => sum + browser.memoryBytes, 0) : null;
    const cpu = curves.last("cpuPercent");
    return [
      tile("Sessions", "#/sessions", count(stats.sessions), `of ${count(total("capacity"))} places`, "sessions", count),
      tile("Waiting for a session", "#/sessions", count(total("waiting")), oldest ? `the longest for ${duration(since(oldest))}` : "nobody waits", "sessionsWaiting", count),
      tile("Commands", "#/events", perSecond(curves.recent("commands")), failures ? `${perSecond(failures)} failed` : "none failed", "commands", perSecond, failures > 0),
      tile("Command time", "#/tabs", time(curves.last("commandP50Ms")), most("commandP95Ms"), "commandP95Ms", time),
      tile("Wait for a tab", "#/tabs", time(curves.last("gateWaitP50Ms")), most("gateWaitP95Ms"), "gateWaitP95Ms", time),
      tile("Tasks in the queue", "#/tasks", count(queued()), tasksDone(), "tasksQueued", count, curves.recent("tasksFailed") > 0),
      tile("Tabs held", "#/tabs", count(me.isAdmin ? held : curves.last("tabsHeld")), seen ? tabsNote(seen, held) : "", "tabsHeld", count),
      tile("Memory of browsers", "#/browsers", bytes(memory), cpu === null ? "not measured yet" : `${Math.round(cpu)} % of a core`, "memoryBytes", bytes),
    ];
  }

  function tile(name, href, figure, note, curve, format, isBad = false) {
    return h("a", { class: "card tile", href, key: name, "data-tile": curve },
      h("span", { class: "quiet small" }, name),
      h("span", { class: "figure" }, figure),
      h("span", { class: `small ${isBad ? "bad-text" : "quiet"}` }, note),
      curves.view(curve, name, format));
  }

  // The curve is about all tabs; an agent sees only its own.
  const tabsNote = (seen, held) => (me.isAdmin ? `of ${count(seen.length)}` : `${count(held)} of your ${count(seen.length)} among them`);

  function most(name) {
    const ms = curves.last(name);
    return ms === null ? "none in the last minute" : `95 % within ${time(ms)}`;
  }

  const queued = () => of("scheduler").data?.queue.totalQueued ?? curves.last("tasksQueued");

  function tasksDone() {
    const [done, failures] = [curves.recent("tasksDone"), curves.recent("tasksFailed")];
    return failures ? `${perSecond(failures)} fail, ${perSecond(done)} are done` : `${perSecond(done)} done`;
  }

  // --- Pools --------------------------------------------------------------------------------------------------

  function pools(stats) {
    return h("section", { class: "card", key: "pools", "aria-labelledby": "pools" },
      h("h2", { id: "pools" }, "Pools"),
      Object.entries(stats.pools).map(([name, pool]) => h("div", { class: "pool", key: name, "data-pool": name },
        h("div", { class: "bar" },
          h("h3", null, name),
          h("span", { class: "quiet small" }, `${count(pool.active)} of ${count(pool.capacity)} places taken`),
          pool.waiting > 0 && badge(`${pool.waiting} ${pool.waiting === 1 ? "waits" : "wait"}`, "busy")),
        h("div", {
          class: `meter${pool.active >= pool.capacity ? " full" : ""}`, role: "meter", "aria-label": `Places taken in pool ${name}`,
          "aria-valuemin": 0, "aria-valuemax": pool.capacity, "aria-valuenow": pool.active,
        }, h("i", { style: { width: `${Math.min(100, (100 * pool.active) / Math.max(1, pool.capacity))}%` } })),
        h("p", { class: "quiet small" },
          [`${count(pool.browsers)} ${pool.browsers === 1 ? "browser" : "browsers"}`, `${count(pool.tabs)} tabs`, `room for ${count(pool.freeSeats)} more at once`,
            `${count(pool.stock)} warm`, pool.pooled > 0 && `${count(pool.pooled)} kept for their key`].filter(Boolean).join(" · ")),
        waiters(pool))));
  }

  function waiters(pool) {
    if (pool.waiters.length === 0) return null;
    const first = pool.waiters.slice(0, WAITERS_SHOWN);
    return h("div", { class: "scroll-x" }, h("table", { class: "plain-table waiters" },
      h("thead", null, h("tr", null, ["Place", "Agent", "Waited", "Expected in"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", null, first.map((waiter) =>
        h("tr", { key: `${waiter.since}${waiter.agentId}${waiter.position}`, "data-position": waiter.position },
          h("td", null, `${waiter.position}`),
          h("td", null, waiter.agentId, waiter.key && h("span", { class: "quiet" }, ` · ${waiter.key}`)),
          h("td", null, ago(waiter.since)),
          h("td", null, duration(waiter.expectedWaitMs)))))),
    pool.waiting > first.length && h("p", { class: "quiet small" }, `and ${count(pool.waiting - first.length)} more`));
  }

  // --- Browsers -----------------------------------------------------------------------------------------------

  function browsers() {
    return h("section", { class: "card", key: "browsers", "aria-labelledby": "browsers" },
      h("h2", { id: "browsers" }, h("a", { href: "#/browsers" }, "Browsers")),
      shown(of("browsers"), "The browsers", (all) => all.length === 0
        ? h("p", { class: "quiet" }, "None runs: one is started for the first session.")
        : [
          h("ul", { class: "plain-list" }, all.slice(0, BROWSERS_SHOWN).map((browser) =>
            h("li", { key: browser.browserId, "data-browser": browser.browserId },
              h("span", { class: "bar" },
                badge(browser.suspect ? "suspect" : browser.state), id(browser.browserId),
                h("span", { class: "quiet small" }, `${count(browser.sessions)} ${browser.sessions === 1 ? "session" : "sessions"} · ${bytes(browser.memoryBytes)}`)),
              ailment(browser) ? h("span", { class: "bad-text small" }, ailment(browser))
                : browser.lastFailure && h("span", { class: "quiet small" }, `the one before it: ${browser.lastFailure}`)))),
          all.length > BROWSERS_SHOWN && h("p", { class: "quiet small" }, `and ${all.length - BROWSERS_SHOWN} more`),
        ]));
  }

  // --- Agents -------------------------------------------------------------------------------------------------

  function agents() {
    return h("section", { class: "card", key: "agents", "aria-labelledby": "agents" },
      h("h2", { id: "agents" }, me.isAdmin ? "Agents" : "What is yours"),
      shown(of("tabs"), "The tabs", (tabs) => {
        const all = agentsOf({ tabs, stats: of("stats").data, scheduler: of("scheduler").data, locks: of("locks").data });
        const mine = me.isAdmin ? all : all.filter((agent) => agent.agentId === me.agentId);
        if (mine.length === 0) {
          return empty("Nobody is here yet", "An agent appears as soon as it opens a session:",
            h("code", null, "tabherd session new --agent NAME"));
        }
        return [
          h("table", { class: "plain-table agents" },
            h("thead", null, h("tr", null, ["Agent", "Holds", "Waits for"].map((name) => h("th", { scope: "col" }, name)))),
            h("tbody", null, mine.slice(0, AGENTS_SHOWN).map((agent) =>
              h("tr", { key: agent.agentId, "data-agent": agent.agentId },
                h("th", { scope: "row" }, agent.agentId),
                h("td", null, lines(agent.holds, "nothing")),
                h("td", null, lines(agent.waits, "nothing")))))),
          mine.length > AGENTS_SHOWN && h("p", { class: "quiet small" }, `and ${mine.length - AGENTS_SHOWN} more`),
        ];
      }));
  }

  const lines = (words, none) => (words.length ? words.map((line) => h("div", null, line)) : h("span", { class: "quiet" }, none));

  // --- Events -------------------------------------------------------------------------------------------------

  function latest() {
    const last = store.events.slice(-EVENTS_SHOWN).reverse();
    return h("section", { class: "card", key: "events", "aria-labelledby": "events" },
      h("h2", { id: "events" }, h("a", { href: "#/events" }, "Latest events")),
      last.length === 0
        ? h("p", { class: "quiet" }, "Nothing has happened since this page was opened.")
        : h("ul", { class: "plain-list events" }, last.map((event) =>
          h("li", { key: event.id, "data-event": event.type },
            h("time", { class: "quiet small", datetime: event.at }, clock(event.at)), " ", h("code", null, event.type), " ", subject(event),
            event.reason && h("span", { class: "quiet" }, ` ${event.reason}`)))));
  }

  return { watch, view };
}

function summary(stats) {
  const pools = Object.values(stats.pools);
  const browsers = pools.reduce((sum, pool) => sum + pool.browsers, 0);
  const words = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;
  return `${words(stats.sessions, "session", "sessions")} in ${words(browsers, "browser", "browsers")}`;
}

function subject(event) {
  if (event.taskId) return h("a", { href: `#/tasks/${encodeURIComponent(event.taskId)}` }, h("code", null, event.taskId));
  if (event.tabId) return tabLink(event.tabId);
  return id(event.sessionId || event.browserId || event.nodeId || event.name || "");
}

const time = (ms) => (ms !== null && ms < 1 ? "< 1 ms" : duration(ms));
const perSecond = (number) => (number === null ? "–" : `${number >= 10 || number === 0 ? Math.round(number) : number.toFixed(1)} /s`);

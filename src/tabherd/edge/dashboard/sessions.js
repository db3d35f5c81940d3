// Sessions: whose, in which state, until when, when their owner was last heard of; and how each is ended or given away.

import { isMine, releaseSession, takeOver } from "./acts.js";
import { get } from "./api.js";
import { toast } from "./dialog.js";
import { h } from "./dom.js";
import { Filters } from "./filters.js";
import { ago, badge, brief, count, duration, id, until, within } from "./format.js";
import { Reading } from "./reading.js";
import { empty, shown } from "./states.js";
import { Table } from "./table.js";
import { hostOf, nameOf, pathOf } from "./tab-words.js";

export const title = "Sessions";

const OPEN = ["reserved", "active", "recovering", "pooled", "closing"];
const ENDED = ["closed", "lost"];
// As many as the server tells at once; more are read when somebody asks for them.
const PAGE = 1_000;
// Sessions that are kept in memory at the most.
const KEPT_MAX = 20_000;

export function page({ query, me, store, update, go }) {
  const filters = new Filters(query, { text: "", state: "open", pool: "", session: "" }, chosen);
  // Those that have ended are asked for here: they are many, and do not change.
  const ended = new Reading({ ask: async () => (await read("")).sessions, store, update });
  // What comes after the first page, read on demand.
  let more = [];
  let isLastRead = false;
  let isReadingOn = false;

  const isOpen = () => filters.values.state === "open" || OPEN.includes(filters.values.state);
  const source = () => (isOpen() ? store.of("sessions") : ended);
  const all = () => [...(source().data || []), ...more];

  function read(cursor) {
    const { state } = filters.values;
    const states = isOpen() ? OPEN : state === "ended" ? ENDED : [state];
    return get("/sessions", { state: states.join(","), order: isOpen() ? "asc" : "desc", limit: PAGE, cursor });
  }

  if (!isOpen()) ended.look();

  function chosen(name) {
    if (name === "state" || name === "") {
      more = [];
      isLastRead = false;
      if (!isOpen()) ended.renew();
    }
    update();
  }

  const table = new Table({
    label: "Sessions",
    key: (session) => session.sessionId,
    open: (session) => filters.set("session", filters.values.session === session.sessionId ? "" : session.sessionId),
    columns: [
      { name: "agent", title: "Agent", cell: (one) => one.agentId, sort: (one) => one.agentId, width: "minmax(6rem, 1.2fr)", smallWidth: "minmax(0, 1fr)" },
      { name: "session", title: "Session", cell: (one) => brief(one.sessionId), sort: (one) => one.sessionId, width: "8rem", isWideOnly: true },
      { name: "state", title: "State", cell: (one) => badge(one.state, one.state === "closed" ? "quiet" : ""), sort: (one) => one.state, width: "6rem", smallWidth: "5.4rem" },
      { name: "pool", title: "Pool", cell: (one) => one.pool, sort: (one) => one.pool, width: "minmax(4rem, .8fr)", isWideOnly: true },
      { name: "key", title: "Key", cell: (one) => one.key || none(), sort: (one) => one.key, width: "minmax(3rem, .8fr)", isWideOnly: true },
      { name: "tier", title: "Tier", cell: (one) => one.tier, sort: (one) => one.tier, width: "minmax(3.5rem, .7fr)", isWideOnly: true },
      { name: "node", title: "Node", cell: (one) => brief(one.node), sort: (one) => one.node, width: "minmax(4rem, .9fr)", isWideOnly: true },
      { name: "tabs", title: "Tabs", cell: (one) => count(one.tabs.length), sort: (one) => one.tabs.length, width: "3rem", smallWidth: "2.4rem", isNumber: true },
      { name: "age", title: "Age", cell: (one) => ago(one.createdAt), sort: (one) => -Date.parse(one.createdAt), width: "4.6rem", isNumber: true, isWideOnly: true },
      { name: "seen", title: "Seen", cell: seen, sort: (one) => -Date.parse(one.seenAt), width: "4.6rem", isNumber: true, isWideOnly: true },
      { name: "deadline", title: "Ends", cell: (one) => (ENDED.includes(one.state) ? one.endReason || none() : within(one.expiresAt)), sort: (one) => one.expiresAt, width: "6rem", smallWidth: "5.4rem" },
    ],
  });

  function view() {
    const pools = [...new Set((source().data || []).map((one) => one.pool))].sort();
    return [
      h("header", { key: "head" },
        h("h1", null, "Sessions"),
        filters.text("text", "Filter by agent, key, id"),
        filters.choice("state", "State", [["open", "open"], ["ended", "ended"], ...[...OPEN, ...ENDED].map((state) => [state, state])]),
        filters.choice("pool", "Pool", [["", "any pool"], ...pools.map((pool) => [pool, pool])]),
        h("span", { class: "quiet small", role: "status" }, source().data && `${count(rows().length)} shown`)),
      shown(source(), "The list of sessions", () => [
        table.view(rows(), nothing()),
        readOn(),
        panel(),
      ]),
    ];
  }

  function rows() {
    const { text, state, pool } = filters.values;
    const words = text.trim().toLowerCase();
    return all().filter((one) =>
      (state === "open" || state === "ended" || one.state === state) && (!pool || one.pool === pool) &&
      (!words || `${one.agentId} ${one.key} ${one.sessionId} ${one.tier} ${one.node} ${one.endReason}`.toLowerCase().includes(words)));
  }

  function nothing() {
    if (filters.values.text || filters.values.pool) return empty("No session is like that", "Other filters may show some.", filters.clearing());
    if (!isOpen()) return empty("No session has ended yet", "Those that end are kept here for a while, with the reason.");
    return empty("No session is open", "An agent leases one over HTTP, MCP, CDP or the command line. Try one:", h("pre", null, "tabherd session new --url https://example.org"));
  }

  // --- More than one page -------------------------------------------------------------------------------------

  function readOn() {
    const known = all().length;
    if (source().data.length < PAGE || isLastRead) return null;
    return h("p", { class: "bar quiet small", key: "more" },
      `${count(known)} are read, ${isOpen() ? "the oldest" : "the newest"} ones; there may be more.`,
      known < KEPT_MAX && h("button", { class: "plain small", disabled: isReadingOn, onclick: next }, isReadingOn ? "Reading…" : `Read ${count(PAGE)} more`));
  }

  async function next() {
    isReadingOn = true;
    update();
    const { state } = filters.values;
    try {
      const { sessions, nextCursor } = await read(all().at(-1).sessionId);
      // Something else may have been asked for meanwhile.
      if (state === filters.values.state) {
        more = [...more, ...sessions];
        isLastRead = !nextCursor;
      }
    } catch (error) {
      toast(error.message, "bad", error.action);
    }
    isReadingOn = false;
    update();
  }

  // --- One of them --------------------------------------------------------------------------------------------

  const find = (sessionId) => all().find((one) => one.sessionId === sessionId);

  function panel() {
    const { session: sessionId } = filters.values;
    if (!sessionId && rows().length === 0) return null;
    if (!sessionId) return h("p", { class: "quiet small", key: "hint" }, "Choose a session to see all of it", !isOpen() ? "." : me.isAdmin ? ", to release it or to give it to another agent." : " or to release it.");
    const session = find(sessionId);
    const closing = h("button", { class: "plain small", onclick: () => filters.set("session", "") }, "Close");
    if (!session) {
      return h("section", { class: "card", key: "panel", "data-session": sessionId },
        h("div", { class: "bar" }, h("h2", null, id(sessionId)), h("span", { class: "spacer" }), closing),
        h("p", { class: "quiet" }, isOpen() ? "It is not among the open sessions: it has ended, or is not yours." : "It is not among these."));
    }
    return h("section", { class: "card details", key: "panel", "data-session": sessionId, "aria-label": `Session ${sessionId}` },
      h("div", { class: "bar" }, h("h2", null, session.agentId), badge(session.state), id(sessionId), h("span", { class: "spacer" }), buttons(session), closing),
      h("dl", { class: "facts" },
        fact("Fence", count(session.fence)), fact("Pool", session.pool),
        fact("Key", session.key || "none"), fact("Tier", session.tier),
        fact("Began", [ago(session.createdAt), " ago"]), fact("Deadline", within(session.expiresAt)),
        fact("Owner seen", [ago(session.seenAt), ` ago; a heartbeat is due every ${duration(session.heartbeatMs)}`]), fact("Ends by itself", session.keepAlive ? "only at its deadline (keepAlive)" : "when its owner is gone"),
        session.phase && fact("Doing", session.phase), fact("Access", session.access), fact("Reuse", session.reuse),
        fact("Browser", id(session.browserId)), fact("Node", id(session.node)),
        session.endReason && fact("Ended", session.endReason)),
      session.tabs.length > 0 && h("ul", { class: "plain-list" }, session.tabs.map((tab) =>
        h("li", { key: tab.tabId }, h("span", { class: "cut" }, h("a", { href: `#${pathOf(tab.tabId)}` }, nameOf(tab)), h("span", { class: "quiet small" }, ` ${hostOf(tab.url)}`))))));
  }

  // --- What can be done ---------------------------------------------------------------------------------------

  const mayEnd = (session) => isMine(me, session) && ["active", "recovering"].includes(session.state);
  const release = async (session) => {
    // What their tabs are up to is known of those on the board.
    const board = new Map((store.of("tabs").data || []).map((tab) => [tab.tabId, tab]));
    if (await releaseSession(session, session.tabs.map((tab) => board.get(tab.tabId) || tab))) store.refresh("sessions");
  };
  const give = async (session) => (await takeOver(session)) && store.refresh("sessions");

  const buttons = (session) => mayEnd(session) && [
    me.isAdmin && h("button", { class: "plain small", "data-act": "takeover", onclick: () => give(session) }, "Take over…"),
    h("button", { class: "danger small", "data-act": "release", onclick: () => release(session) }, "Release…"),
  ];

  const onChosen = (run) => () => {
    const session = table.selected || find(filters.values.session);
    if (session && mayEnd(session)) run(session);
  };
  const keys = {
    t: { title: "open the first tab of the selected session", run: () => table.selected?.tabs.length && go(pathOf(table.selected.tabs[0].tabId)) },
    x: { title: "release the selected session", run: onChosen(release) },
    ...(me.isAdmin && { o: { title: "give the selected session to another agent", run: onChosen(give) } }),
  };

  return { watch: ["sessions", "tabs"], view, keys, close: () => ended.stop() };
}

const fact = (name, value) => [h("dt", null, name), h("dd", null, value)];
const none = () => h("span", { class: "quiet" }, "–");

// Silence that is longer than a heartbeat and a half is shown as such.
function seen(session) {
  if (ENDED.includes(session.state)) return none();
  const silent = -until(session.seenAt) > session.heartbeatMs * 1.5 && !session.keepAlive;
  return h("span", { class: silent ? "busy-text" : "" }, ago(session.seenAt));
}

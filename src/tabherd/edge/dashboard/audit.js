// The audit trail, newest first: who did what to which tab, session or setting. Read on while one scrolls down.

import { get } from "./api.js";
import { show } from "./dialog.js";
import { h } from "./dom.js";
import { Filters } from "./filters.js";
import { count } from "./format.js";
import { empty, failed, shown } from "./states.js";
import { Table } from "./table.js";
import { copyButton } from "./copy.js";
import { pretty } from "./value.js";

export const title = "Audit";

const PAGE = 200;
// No more are kept in this window.
const ENTRIES_MAX = 10_000;
// What is new is read so often, while one looks at the top.
const EVERY_MS = 3_000;
const BAD = /(timed_out|failed|unknown|crashed|denied|lost)/;
const small = matchMedia("(max-width: 720px)");

export function page({ query, store, update }) {
  const filters = new Filters(query, { agent: "", session: "", tab: "" }, () => renew());
  const trail = new Trail({ filters, store, update });
  const timer = setInterval(() => {
    if (!document.hidden && table.top === 0) trail.readNew();
  }, EVERY_MS);

  const table = new Table({
    label: "Audit trail",
    key: (entry) => entry.id,
    open: details,
    atEnd: () => trail.readOn(),
    columns: [
      { name: "at", title: "Time", cell: (entry) => h("time", { datetime: entry.at, title: entry.at }, moment(entry.at)), width: "10.4rem", smallWidth: "5.2rem" },
      { name: "agent", title: "Who", cell: (entry) => choice("agent", entry.agentId), width: "minmax(5rem, .7fr)", isWideOnly: true },
      { name: "verb", title: "Did", cell: verb, width: "minmax(7rem, .8fr)", smallWidth: "minmax(0, 1fr)" },
      { name: "detail", title: "With what", cell: (entry) => h("span", { class: BAD.test(entry.detail) ? "bad-text" : "", title: entry.detail }, entry.detail || "–"), width: "minmax(8rem, 1.4fr)", isWideOnly: true },
      { name: "session", title: "Session", cell: (entry) => choice("session", entry.sessionId), width: "minmax(6rem, 1fr)", isWideOnly: true },
      { name: "tab", title: "Tab", cell: (entry) => choice("tab", entry.tabId), width: "minmax(6rem, 1fr)", isWideOnly: true },
    ],
  });

  function renew() {
    trail.renew();
    update();
  }

  function view() {
    table.rowHeight = small.matches ? 54 : 38;
    return [
      h("header", { key: "head" }, h("h1", null, "Audit"), trail.data && h("span", { class: "quiet", role: "status" }, summary())),
      shown(trail, "The audit trail", () => [
        h("div", { class: "bar", key: "filters" }, filters.word("agent", "Agent"), filters.word("session", "Session id"), filters.word("tab", "Tab id"), filters.clearing()),
        table.view(trail.entries, nothing()),
        trail.entries.length > 0 && trail.error && failed(trail.error, () => trail.readOn()),
      ]),
    ];
  }

  function summary() {
    if (trail.entries.length >= ENTRIES_MAX) return `the newest ${count(ENTRIES_MAX)}; filter to see others`;
    return `${count(trail.entries.length)} read${trail.cursor ? ", more below" : ", all there is"}`;
  }

  function nothing() {
    if (filters.isSet) return empty("Nothing in the trail fits", "The names have to be whole.", h("button", { class: "plain", onclick: () => filters.clear() }, "Clear filters"));
    return empty("The trail is empty", "Whatever is done to a tab, a session or a setting is kept here.", h("code", null, "tabherd session new --agent NAME"));
  }

  // A name that can be clicked, to see only what has to do with it.
  function choice(name, value) {
    if (!value) return h("span", { class: "quiet" }, "–");
    return h("button", { class: "as-text", title: `Only ${name} ${value}`, onclick: () => filters.set(name, value) }, name === "agent" ? value : h("code", null, value));
  }

  function verb(entry) {
    return [
      h("b", { class: "cut" }, entry.verb),
      small.matches && h("small", { class: `cut ${BAD.test(entry.detail) ? "bad-text" : "quiet"}` }, [entry.agentId, entry.detail].filter(Boolean).join(" · ")),
    ];
  }

  trail.look();
  return {
    watch: [],
    view,
    close() {
      clearInterval(timer);
      trail.stop();
    },
  };
}

// What was read of the trail so far, in the shape that `shown` draws.
class Trail {
  constructor({ filters, store, update }) {
    this.filters = filters;
    this.store = store;
    this.update = update;
    this.state = "loading";
    this.error = null;
    this.unreachable = [];
    this.entries = [];
    // Where the next page begins; null after the last one.
    this.cursor = null;
    this.isReading = false;
    // Grows when something else is wanted: answers to what was asked before are dropped.
    this.round = 0;
  }

  get data() {
    return this.state === "ready" ? this.entries : null;
  }

  stop() {
    this.round += 1;
  }

  // Something else is wanted.
  renew() {
    this.round += 1;
    Object.assign(this, { state: "loading", entries: [], cursor: null, isReading: false, error: null });
    this.look();
  }

  look() {
    return this.read("", (page) => {
      this.entries = page.entries;
      this.cursor = page.nextCursor ?? null;
    });
  }

  async readOn() {
    if (this.cursor === null || this.entries.length >= ENTRIES_MAX) return;
    await this.read(this.cursor, (page) => {
      this.entries = [...this.entries, ...page.entries];
      this.cursor = page.nextCursor ?? null;
    });
  }

  // What came since. If that is more than a page, it begins anew: there must be no gap that nobody sees.
  async readNew() {
    if (this.state !== "ready") return;
    await this.read("", (page) => {
      const newest = this.entries[0]?.id ?? "";
      if (page.nextCursor && page.nextCursor > newest) {
        this.entries = page.entries;
        this.cursor = page.nextCursor;
        return;
      }
      // By id: another node's clock may be behind, so that what is new is not all on top.
      const all = new Map([...page.entries, ...this.entries].map((entry) => [entry.id, entry]));
      if (all.size === this.entries.length) return;
      this.entries = [...all.values()].sort((one, other) => (one.id < other.id ? 1 : -1)).slice(0, ENTRIES_MAX);
    });
  }

  async read(cursor, take) {
    if (this.isReading) return;
    this.isReading = true;
    const { round } = this;
    const { agent, session, tab } = this.filters.values;
    try {
      const page = await get("/audit", { order: "desc", limit: PAGE, cursor, agentId: agent, sessionId: session, tabId: tab });
      if (round !== this.round) return;
      take(page);
      Object.assign(this, { state: "ready", error: null });
      this.store.heard();
    } catch (error) {
      if (round !== this.round) return;
      this.error = error;
      if (error.isForbidden) this.state = "forbidden";
      else if (this.state !== "ready") this.state = "failed";
      if (error.isUnreachable) this.store.unheard();
    }
    this.isReading = false;
    this.update();
  }
}

function details(entry) {
  const close = show(entry.verb, h("div", { class: "event" },
    h("pre", null, pretty(entry)),
    h("div", { class: "bar" },
      entry.tabId && h("a", { href: `#/tabs/${encodeURIComponent(entry.tabId)}`, onclick: () => close() }, "The tab"),
      copyButton(pretty(entry), "the entry"))));
}

function moment(at) {
  const time = new Date(at);
  const clock = time.toLocaleTimeString("en-GB", { hour12: false });
  return small.matches ? clock : `${time.toLocaleDateString("en-CA")} ${clock}`;
}

// What the pages show, kept current: asked for once, again when the server tells of something that concerns it, and
// every few seconds in any case, since not everything is told.
//
// Only what the open page watches is asked for. One stream of events serves all pages of this window; when it breaks it
// is taken up where it ended, and what was missed is read anew. What was known before stays on the screen meanwhile.

import { get, request } from "./api.js";

// What can be watched: where it is, what of the answer is wanted, which events concern it, how often to look anyway.
export const RESOURCES = {
  health: { path: "/health", events: /^node\./, everyMs: 10_000 },
  stats: { path: "/stats?waiters=all", events: /^(session|browser|node|tab\.)/, everyMs: 2_000 },
  // The tail; curves.js reads the rest.
  history: { path: "/history?limit=10", events: null, everyMs: 2_000 },
  browsers: { path: "/browsers", pick: (said) => said.browsers, events: /^(browser|session\.)/, everyMs: 4_000 },
  nodes: { path: "/nodes", pick: (said) => said.nodes, events: /^node\./, everyMs: 3_000 },
  tabs: { path: "/tabs", pick: (said) => said.tabs, events: /^(session|tab\.|lock_)/, everyMs: 1_500 },
  sessions: { path: "/sessions?limit=1000&state=reserved,active,recovering,pooled,closing", pick: (said) => said.sessions, events: /^session/, everyMs: 4_000 },
  scheduler: { path: "/scheduler/stats", events: /^task\./, everyMs: 2_000 },
  locks: { path: "/locks", pick: (said) => said.locks, events: /^lock\./, everyMs: 3_000 },
  advisory: { path: "/api/advisory-locks", pick: (said) => said.advisory_locks, events: /^lock\./, everyMs: 4_000 },
};
// However much happens, the same thing is not asked for more often.
const PAUSE_MS = 400;
// Events that are kept for those who look later.
const EVENTS_MAX = 500;
const RETRY_FIRST_MS = 500;
const RETRY_MAX_MS = 8_000;

// One thing that is watched.
class Resource {
  constructor(name, about, store) {
    this.name = name;
    this.about = about;
    this.store = store;
    // loading, ready, failed or forbidden. What was read once is shown on when a later look fails.
    this.state = "loading";
    this.data = null;
    // Nodes that did not answer, so that what they have is missing.
    this.unreachable = [];
    this.error = null;
    this.timer = 0;
    this.lookedAt = 0;
    this.isLooking = false;
    this.isStale = false;
  }

  // Look soon; at once if the last look is long enough ago.
  hint() {
    if (this.isLooking) {
      this.isStale = true;
      return;
    }
    const wait = Math.max(0, this.lookedAt + PAUSE_MS - performance.now());
    this.schedule(wait);
  }

  schedule(ms) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look(), ms);
  }

  async look() {
    clearTimeout(this.timer);
    if (this.isLooking) return;
    this.isLooking = true;
    this.isStale = false;
    this.lookedAt = performance.now();
    try {
      const said = await get(this.about.path);
      this.data = this.about.pick ? this.about.pick(said) : said;
      this.unreachable = said.unreachable || [];
      this.state = "ready";
      this.error = null;
      this.store.heard();
    } catch (error) {
      this.error = error;
      if (error.isForbidden) this.state = "forbidden";
      else if (this.data === null) this.state = "failed";
      if (error.isUnreachable) this.store.unheard();
    }
    this.isLooking = false;
    if (!this.store.watched.has(this.name)) return;
    this.schedule(this.isStale ? PAUSE_MS : this.about.everyMs);
    this.store.changed();
  }

  stop() {
    clearTimeout(this.timer);
  }
}

export class Store {
  // `changed` is called whenever there may be something new to draw.
  constructor(changed) {
    this.changed = changed;
    // live, connecting or reconnecting.
    this.connection = "connecting";
    // Newest last: {id, type, at, ...}.
    this.events = [];
    this.eventsSeen = 0;
    this.watched = new Set();
    this.resources = new Map();
    this.listeners = new Set();
    // Where the stream of events stands.
    this.place = "";
    this.isStreaming = false;
    this.stopping = null;
    this.onVisible = () => !document.hidden && this.refresh();
  }

  start() {
    this.stopping = new AbortController();
    document.addEventListener("visibilitychange", this.onVisible);
    this.follow(this.stopping.signal);
  }

  stop() {
    this.stopping?.abort();
    document.removeEventListener("visibilitychange", this.onVisible);
    this.watch([]);
  }

  // From now on these, and no others, are kept current.
  watch(names) {
    this.watched = new Set(names);
    for (const [name, resource] of this.resources) if (!this.watched.has(name)) resource.stop();
    for (const name of names) this.of(name).hint();
  }

  // What is known of it: {state, data, error, unreachable}.
  of(name) {
    let resource = this.resources.get(name);
    if (!resource) {
      resource = new Resource(name, RESOURCES[name], this);
      this.resources.set(name, resource);
    }
    return resource;
  }

  // Read these anew, or all that are watched; after something was done.
  refresh(...names) {
    for (const name of names.length ? names : this.watched) if (this.watched.has(name)) this.of(name).hint();
  }

  // Called with each event; returns what ends it.
  listen(told) {
    this.listeners.add(told);
    return () => this.listeners.delete(told);
  }

  heard() {
    if (this.connection === "reconnecting" && this.isStreaming) this.connect("live");
  }

  unheard() {
    this.connect("reconnecting");
  }

  connect(state) {
    if (this.connection === state) return;
    this.connection = state;
    this.changed();
  }

  async follow(signal) {
    let pause = RETRY_FIRST_MS;
    while (!signal.aborted) {
      try {
        const headers = this.place ? { "last-event-id": this.place } : {};
        const response = await request("GET", "/events", { headers, signal });
        this.isStreaming = true;
        this.connect("live");
        this.refresh();
        pause = RETRY_FIRST_MS;
        await this.read(response.body, signal);
      } catch (error) {
        if (error.name === "AbortError") return;
        // Nobody is logged in any more: that is said elsewhere, and trying again would not help.
        if (error.status === 401) return;
      }
      this.isStreaming = false;
      this.connect("reconnecting");
      await new Promise((resume) => setTimeout(resume, pause * (0.75 + Math.random() / 2)));
      pause = Math.min(pause * 2, RETRY_MAX_MS);
    }
  }

  async read(body, signal) {
    const decoder = new TextDecoder();
    const reader = body.getReader();
    let text = "";
    while (!signal.aborted) {
      const { done, value } = await reader.read();
      if (done) return;
      text += decoder.decode(value, { stream: true });
      const blocks = text.split("\n\n");
      text = blocks.pop();
      for (const block of blocks) this.take(block);
      this.changed();
    }
  }

  take(block) {
    let type = "";
    let data = "";
    for (const line of block.split("\n")) {
      if (line.startsWith("id: ")) this.place = line.slice(4);
      else if (line.startsWith("event: ")) type = line.slice(7);
      else if (line.startsWith("data: ")) data += line.slice(6);
    }
    // Its own place and heartbeats are no events.
    if (!type) return;
    const event = { ...JSON.parse(data), type, id: this.place };
    this.eventsSeen += 1;
    this.events.push(event);
    if (this.events.length > EVENTS_MAX) this.events.splice(0, this.events.length - EVENTS_MAX);
    for (const told of this.listeners) told(event);
    for (const name of this.watched) {
      if (type === "reset" || RESOURCES[name].events?.test(type)) this.of(name).hint();
    }
  }
}

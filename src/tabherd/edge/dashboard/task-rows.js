// The tasks that are at hand, read page by page into memory, and kept current by what events tell.
//
// An event says that a task changed, not all that is new about it. Those that changed are read again together, in few
// requests, each from the newest of them downwards. No more than TASKS_MAX are kept; `isCut` says that there are more.

import { get } from "./api.js";

export const TASKS_MAX = 5_000;
export const OVER = new Set(["done", "failed", "cancelled", "rejected"]);
const PAGE = 500;
const PAUSE_MS = 400;
// One request reads at most so many again, and one round has at most so many requests.
const AGAIN_MAX = 200;
const REQUESTS_MAX = 4;
// One that was told of may not be on disk yet; after so many looks it is none of those that are listed.
const LOOKS_MAX = 3;
// What is kept of a text that may be long.
const TEXT_MAX = 300;
const RETRY_MS = 3_000;
const DRAW_EVERY_MS = 250;

export class TaskRows {
  constructor({ store, update }) {
    this.store = store;
    this.update = update;
    // loading, ready, failed or forbidden; as `shown` wants it.
    this.state = "loading";
    this.error = null;
    this.unreachable = [];
    this.tasks = new Map();
    // What a reading that is under way has found so far; null when none is.
    this.fresh = null;
    this.isCut = false;
    // What of all tasks was read: {agentId, states (one after the other; none: all), order}.
    this.scope = { states: [] };
    // Grows with each change, so that who draws knows whether there is something new.
    this.version = 0;
    this.drawing = 0;
    this.drawnAt = -Infinity;
    // Ids that are to be read again, and how often each was looked for.
    this.stale = new Map();
    this.timer = 0;
    this.retry = 0;
    this.readings = 0;
    this.isRefreshing = false;
    this.unlisten = store.listen((event) => this.heard(event));
  }

  get data() {
    return this.state === "ready" ? this : null;
  }

  get isReading() {
    return this.fresh !== null;
  }

  stop() {
    this.unlisten();
    this.readings += 1;
    clearTimeout(this.timer);
    clearTimeout(this.retry);
    clearTimeout(this.drawing);
    this.stale.clear();
  }

  // --- Reading all --------------------------------------------------------------------------------------------

  // These are wanted. If all tasks are in memory already, so are they; but places in the queue have to be of one moment.
  want(scope) {
    const isWhole = scope.order === "desc" && this.state === "ready" && !this.isReading && !this.isCut && !this.scope.agentId && !this.scope.states.length;
    if (isWhole) return;
    this.scope = scope;
    this.state = "loading";
    this.tasks.clear();
    this.look();
  }

  // Read all of them anew; what is shown stays until then.
  async look() {
    const reading = ++this.readings;
    const fresh = (this.fresh = new Map());
    clearTimeout(this.retry);
    const { agentId, states, order } = this.scope;
    let isCut = false;
    try {
      for (const state of states.length ? states : [""]) {
        let cursor = "";
        do {
          const page = await get("/tasks", { agentId, state, order, cursor, limit: PAGE, results: false });
          if (reading !== this.readings) return;
          for (const task of page.tasks) if (!fresh.has(task.taskId)) fresh.set(task.taskId, brief(task));
          cursor = page.nextCursor;
          if (this.state !== "ready") {
            this.tasks = fresh;
            this.version += 1;
          }
          Object.assign(this, { state: "ready", error: null });
          this.store.heard();
          this.changed();
        } while (cursor && fresh.size < TASKS_MAX);
        isCut ||= Boolean(cursor);
      }
      this.tasks = fresh;
      this.isCut = isCut;
    } catch (error) {
      if (reading !== this.readings) return;
      this.error = error;
      if (error.isForbidden) this.state = "forbidden";
      else {
        if (this.state !== "ready") this.state = "failed";
        if (error.isUnreachable) this.store.unheard();
        this.retry = setTimeout(() => this.look(), RETRY_MS);
      }
    }
    this.fresh = null;
    this.changed();
  }

  // --- Reading some again -------------------------------------------------------------------------------------

  heard(event) {
    if (event.type === "reset") this.look();
    if (!event.type.startsWith("task.") || !event.taskId) return;
    if (this.scope.agentId && event.agentId !== this.scope.agentId) return;
    const known = this.tasks.get(event.taskId);
    if (known) {
      known.state = event.type.slice("task.".length);
      if (known.state !== "queued") known.position = known.etaMs = null;
      if (event.code) known.code = event.code;
      this.changed();
    }
    this.again([event.taskId]);
  }

  again(taskIds) {
    for (const taskId of taskIds) this.stale.set(taskId, 0);
    this.schedule();
  }

  schedule(ms = PAUSE_MS) {
    if (this.stale.size === 0 || this.isRefreshing) return;
    this.isRefreshing = true;
    this.timer = setTimeout(() => this.refresh(), ms);
  }

  async refresh() {
    const passed = new Set();
    let pause = PAUSE_MS;
    try {
      for (let request = 0; request < REQUESTS_MAX; request += 1) {
        const wanted = [...this.stale.keys()].filter((taskId) => !passed.has(taskId)).sort().reverse();
        if (wanted.length === 0) break;
        const limit = Math.min(AGAIN_MAX, 2 * wanted.length - 1);
        // Behind the newest of them, so that it is the first that is read.
        const page = await get("/tasks", { order: "desc", cursor: `${wanted[0]}~`, limit, results: false });
        const found = new Map(page.tasks.map((task) => [task.taskId, task]));
        const last = page.nextCursor || "";
        for (const taskId of wanted) {
          if (taskId < last) break;
          passed.add(taskId);
          this.settle(taskId, found.get(taskId));
        }
        this.changed();
      }
    } catch (error) {
      // They stay stale, and are read when the server answers again.
      if (error.isUnreachable) this.store.unheard();
      pause = RETRY_MS;
    }
    this.isRefreshing = false;
    this.schedule(pause);
  }

  settle(taskId, task) {
    if (task) {
      this.stale.delete(taskId);
      const row = brief(task);
      this.tasks.set(taskId, row);
      this.fresh?.set(taskId, row);
    } else if (this.stale.get(taskId) + 1 < LOOKS_MAX) this.stale.set(taskId, this.stale.get(taskId) + 1);
    else this.stale.delete(taskId);
  }

  // At most every DRAW_EVERY_MS: what is drawn from thousands of rows must not be worked out for each of them anew.
  changed() {
    if (this.drawing) return;
    this.drawing = setTimeout(() => {
      this.drawing = 0;
      this.drawnAt = performance.now();
      if (this.tasks.size > 1.1 * TASKS_MAX) this.drop();
      this.version += 1;
      this.update();
    }, Math.max(0, this.drawnAt + DRAW_EVERY_MS - performance.now()));
  }

  // The oldest go, those that are over first.
  drop() {
    const ids = [...this.tasks.keys()].sort((one, other) => this.isOver(other) - this.isOver(one) || (one < other ? -1 : 1));
    for (const taskId of ids.slice(0, this.tasks.size - TASKS_MAX)) this.tasks.delete(taskId);
    this.isCut = true;
  }

  isOver(taskId) {
    return OVER.has(this.tasks.get(taskId).state);
  }
}

// What a row needs: a list of thousands must not hold what they were told to do.
function brief(task) {
  const { taskId, agentId, state, priority, position, etaMs, createdAt, startedAt, completedAt, latencyMs, code } = task;
  const what = task.steps ? task.steps.map((step) => step.kind).join(", ").slice(0, TEXT_MAX) : task.action;
  const target = targetOf(task).slice(0, TEXT_MAX);
  const error = (task.error || "").slice(0, TEXT_MAX);
  const row = { taskId, agentId, state, priority, position, etaMs, createdAt, startedAt, completedAt, latencyMs, code, what, target, error, steps: task.steps?.length || 0 };
  row.search = `${taskId} ${agentId} ${task.action} ${what} ${target} ${code || ""} ${error}`.toLowerCase();
  return row;
}

function targetOf(task) {
  const address = task.params.url || task.steps?.find((step) => step.url)?.url;
  return String(address || task.selector || task.ref || task.tabId || task.sessionId || "");
}

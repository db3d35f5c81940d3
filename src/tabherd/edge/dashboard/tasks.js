// The tasks that wait, run, or ended a short while ago: found, followed and cancelled.

import { cancelTasks } from "./cancelling.js";
import { copy } from "./copy.js";
import { Curves } from "./curves.js";
import { h } from "./dom.js";
import { Filters } from "./filters.js";
import { ago, badge, count, duration, since } from "./format.js";
import { queueView } from "./queue.js";
import { empty, shown } from "./states.js";
import { Table } from "./table.js";
import { OVER, TASKS_MAX, TaskRows } from "./task-rows.js";

export const title = "Tasks";

const STATES = ["queued", "assigned", "running", "done", "failed", "cancelled", "rejected"];
// Where a task stands in the queue changes without an event: how often those in sight are read again.
const PLACES_EVERY_MS = 3_000;
const ROW_PX = 38;
// On a phone a second line says what became of it.
const SMALL_ROW_PX = 54;
const small = matchMedia("(max-width: 720px)");

export function page({ query, me, store, update, go }) {
  const curves = new Curves(update);
  const filters = new Filters(query, { state: "", agent: "", text: "", order: "newest" }, (name) => {
    if (name === "order" || name === "") table.sort = "";
    // Text is looked for in memory; the rest decides what is read, if not all is there.
    if (name !== "text") list.want(scope());
    update();
  });
  const list = new TaskRows({ store, update });
  // Ids of those that were ticked to be cancelled together.
  const ticked = new Set();
  // How far a cancelling of many is: {done, all}; null when there is none.
  let cancelling = null;
  // The rows as they were last worked out, and from what.
  let rows = [];
  let rowsOf = "";

  const table = new Table({
    label: "Tasks",
    key: (task) => task.taskId,
    open: (task) => go(`/tasks/${encodeURIComponent(task.taskId)}`),
    columns: [
      { name: "tick", title: "", cell: tick, width: "1.1rem", isWideOnly: true },
      { name: "state", title: "State", cell: (task) => badge(task.state), sort: (task) => STATES.indexOf(task.state), width: "5.4rem", smallWidth: "4.9rem" },
      { name: "agent", title: "Agent", cell: (task) => h("span", { title: task.agentId }, task.agentId), sort: (task) => task.agentId, width: "minmax(4rem, .8fr)", isWideOnly: true },
      { name: "action", title: "Action", cell: what, sort: (task) => task.what, width: "minmax(5rem, 1fr)" },
      { name: "target", title: "On", cell: (task) => h("span", { title: task.target }, task.target || "–"), width: "minmax(6rem, 1.6fr)", isWideOnly: true },
      { name: "priority", title: "Priority", cell: (task) => count(task.priority), sort: (task) => task.priority, width: "4rem", isNumber: true, isWideOnly: true },
      { name: "outcome", title: "How it stands", cell: standing, width: "minmax(8rem, 2fr)", isWideOnly: true },
      { name: "age", title: "Age", cell: (task) => ago(task.createdAt), sort: (task) => -Date.parse(task.createdAt), width: "5rem", smallWidth: "3.2rem", isNumber: true },
      { name: "latency", title: "Took", cell: (task) => duration(task.latencyMs), sort: (task) => task.latencyMs ?? -1, width: "4.6rem", isNumber: true, isWideOnly: true },
    ],
  });

  // What has not started yet, or has not ended, is all that an order of start is about, unless another state is wanted.
  const isByStart = () => filters.values.order === "start" && !filters.values.state;

  function scope() {
    const { agent, state, order } = filters.values;
    return { agentId: agent, states: state ? [state] : isByStart() ? ["running", "assigned", "queued"] : [], order: order === "start" ? "asc" : "desc" };
  }

  list.want(scope());
  const places = setInterval(followPlaces, PLACES_EVERY_MS);

  // --- What is shown ------------------------------------------------------------------------------------------

  function view() {
    table.rowHeight = small.matches ? SMALL_ROW_PX : ROW_PX;
    if (store.watched.has("history")) curves.take(store.of("history").data);
    const stats = store.of("scheduler").data;
    return [
      h("header", { key: "head" }, h("h1", null, "Tasks"), h("span", { class: "quiet", role: "status" }, summary())),
      stats && queueView({ stats, curves: store.watched.has("history") ? curves : null, isAdmin: me.isAdmin, chosen: filters.values.agent, choose: (agentId) => filters.set("agent", agentId) }),
      shown(list, "The list of tasks", () => [bar(stats), cut(), table.view(fitting(), nothing(stats))]),
    ];
  }

  function summary() {
    if (list.state !== "ready") return "";
    const found = fitting().length;
    const words = filters.isSet ? `${count(found)} of ${count(list.tasks.size)}` : `${count(found)} at hand`;
    return list.isReading ? `${words}, reading on…` : words;
  }

  function bar(stats) {
    const agents = new Set([...Object.keys(stats?.queue.agents || {}), ...Object.keys(stats?.metrics.agents || {})]);
    const cancellable = chosen();
    return h("div", { class: "bar", key: "filters" },
      filters.text("text", "Find id, action, address"),
      filters.choice("state", "State", [["", "Every state"], ...STATES.map((state) => [state, state])]),
      me.isAdmin && filters.choice("agent", "Agent", [["", "Every agent"], ...[...agents].sort().map((agentId) => [agentId, agentId])]),
      filters.choice("order", "Order", [["newest", "Newest first"], ["start", "In the order of start"]]),
      filters.clearing(),
      h("span", { class: "spacer" }),
      cancelling && h("span", { class: "quiet", role: "status" }, `Cancelling ${count(cancelling.done)} of ${count(cancelling.all)}…`),
      h("button", { class: "plain small wide-only", key: "all", onclick: tickAll }, cancellable.length ? "Untick all" : "Tick all that are not over"),
      cancellable.length > 0 && h("button", { class: "danger", key: "cancel", disabled: cancelling !== null, onclick: () => cancel(cancellable) }, `Cancel ${count(cancellable.length)}…`));
  }

  function cut() {
    return list.isCut && h("p", { class: "notice", key: "cut", "data-cut": "" },
      `Only ${count(TASKS_MAX)} tasks are shown, the ${filters.values.order === "start" ? "oldest" : "newest"} of those that fit the chosen state and agent. Narrow these down to see others.`);
  }

  function nothing(stats) {
    if (filters.isSet) {
      return empty("No task fits", "Of those that wait, run, or ended a short while ago.", h("button", { class: "plain", onclick: () => filters.clear() }, "Clear filters"));
    }
    const kept = stats ? duration(1_000 * stats.config.resultTTLSec) : "a few minutes";
    return empty("No task is at hand", `Tasks that wait or run are here, and for ${kept} those that are over. Submit one:`,
      h("code", null, "tabherd task submit navigate url=https://example.org"));
  }

  // Those that fit the filters, in the chosen order; worked out anew only when something changed.
  function fitting() {
    const { state, agent, order } = filters.values;
    const text = filters.values.text.trim().toLowerCase();
    const from = JSON.stringify([list.version, state, agent, order, text]);
    if (from !== rowsOf) {
      rowsOf = from;
      rows = [...list.tasks.values()]
        .filter((task) => (state ? task.state === state : !isByStart() || !OVER.has(task.state)) && (!agent || task.agentId === agent) && (!text || task.search.includes(text)))
        .sort(order === "start" ? byStart : byAge);
    }
    return rows;
  }

  // --- Cells --------------------------------------------------------------------------------------------------

  function tick(task) {
    if (OVER.has(task.state)) return null;
    return h("input", { type: "checkbox", checked: ticked.has(task.taskId), "aria-label": `Tick ${task.taskId}`, onchange: () => toggle(task) });
  }

  function what(task) {
    const words = task.steps ? `${task.steps} steps: ${task.what}` : task.what;
    return [h("span", { class: "cut", title: words }, words), small.matches && h("small", { class: "cut" }, task.state === "done" ? h("span", { class: "quiet" }, task.target) : standing(task))];
  }

  // --- What is done -------------------------------------------------------------------------------------------

  const chosen = () => [...ticked].map((taskId) => list.tasks.get(taskId)).filter((task) => task && !OVER.has(task.state));

  function toggle(task) {
    if (!ticked.delete(task.taskId)) ticked.add(task.taskId);
    update();
  }

  function tickAll() {
    if (chosen().length) ticked.clear();
    else for (const task of fitting()) if (!OVER.has(task.state)) ticked.add(task.taskId);
    update();
  }

  async function cancel(tasks) {
    const wasDone = await cancelTasks(tasks, (done) => {
      cancelling = tasks.length > 1 ? { done, all: tasks.length } : null;
      update();
    });
    cancelling = null;
    if (wasDone) {
      for (const task of tasks) ticked.delete(task.taskId);
      list.again(tasks.map((task) => task.taskId));
      store.refresh("scheduler");
    }
    update();
  }

  function followPlaces() {
    if (document.hidden || !table.body?.isConnected || list.isReading) return;
    const isQueued = (task) => task.state === "queued";
    if (filters.values.order === "start") {
      // An order of which only parts are new is none.
      if (fitting().some(isQueued)) list.look();
      return;
    }
    const first = Math.floor(table.top / table.rowHeight);
    const inSight = Math.ceil(table.height / table.rowHeight) + 1;
    list.again(table.rows.slice(first, first + inSight).filter(isQueued).map((task) => task.taskId));
  }

  const ofSelected = (work) => () => table.selected && work(table.selected);
  return {
    watch: me.isAdmin || me.scopes.includes("browse") ? ["scheduler", "history"] : ["scheduler"],
    view,
    keys: {
      x: { title: "cancel the selected task", run: ofSelected((task) => !OVER.has(task.state) && cancel([task])) },
      s: { title: "tick the selected task, to cancel several", run: ofSelected((task) => !OVER.has(task.state) && toggle(task)) },
      c: { title: "copy the id of the selected task", run: ofSelected((task) => copy(task.taskId, "the id of the task")) },
    },
    close() {
      clearInterval(places);
      list.stop();
    },
  };
}

// How it stands, in words: its place, since when it runs, or why it failed.
function standing(task) {
  switch (task.state) {
    case "queued":
      if (task.position === null) return h("span", { class: "quiet" }, "waits");
      return `number ${count(task.position)}${task.etaMs ? `, in about ${duration(task.etaMs)}` : ", next"}`;
    case "assigned":
      return "about to start";
    case "running":
      return task.startedAt ? `for ${duration(since(task.startedAt))}` : "now";
    default:
      if (!task.code && !task.error) return h("span", { class: "quiet" }, "–");
      return h("span", { class: task.state === "failed" || task.state === "rejected" ? "bad-text" : "", title: task.error }, task.code && h("code", null, task.code), ` ${task.error}`);
  }
}

const byAge = (one, other) => (one.taskId < other.taskId ? 1 : -1);

// First what runs, then what waits, by its place; what is over, newest first.
function byStart(one, other) {
  const [rank, otherRank] = [rankOf(one), rankOf(other)];
  if (rank !== otherRank) return rank - otherRank;
  if (rank === 0) return (one.startedAt || "~").localeCompare(other.startedAt || "~");
  if (rank === 1) return (one.position ?? Infinity) - (other.position ?? Infinity) || -byAge(one, other);
  return byAge(one, other);
}

const rankOf = (task) => (OVER.has(task.state) ? 2 : task.state === "queued" ? 1 : 0);

// One task: what it is to do and where, how far it is, and what came of it. Live until it is over.

import { get } from "./api.js";
import { cancelTasks } from "./cancelling.js";
import { copy, copyButton } from "./copy.js";
import { h } from "./dom.js";
import { badge, clock, count, duration, id, since, within } from "./format.js";
import { NEXT_STEPS } from "./next-steps.js";
import { Reading } from "./reading.js";
import { empty, shown } from "./states.js";
import { OVER } from "./task-rows.js";
import { pretty, valueView } from "./value.js";

export const title = "Task";

const EVERY_MS = 2_000;
const WEBHOOK_EVERY_MS = 5_000;
// What every step has, unless it was told otherwise.
const USUAL = { waitPolicy: "fail_fast", onTimeout: "rebuild", waitUntil: "load", button: "left", format: "png" };

export function page({ params, me, store, update }) {
  const { taskId } = params;
  const reading = new Reading({ ask, everyMs: EVERY_MS, store, update });
  const unlisten = store.listen((event) => {
    if (event.taskId === taskId || event.type === "reset") reading.soon();
  });
  reading.look();

  async function ask() {
    const task = await get(`/tasks/${encodeURIComponent(taskId)}`);
    if (!OVER.has(task.state)) reading.everyMs = EVERY_MS;
    else reading.everyMs = task.webhook?.state === "pending" ? WEBHOOK_EVERY_MS : 0;
    return task;
  }

  const task = () => reading.data;
  const mayCancel = () => task() && !OVER.has(task().state) && (me.isAdmin || task().agentId === me.agentId);

  async function cancel() {
    if (mayCancel() && (await cancelTasks([task()]))) reading.soon();
  }

  function view() {
    return [
      h("header", { key: "head" },
        h("a", { href: "#/tasks", class: "button plain", "aria-label": "All tasks" }, "←"),
        h("h1", null, task() ? task().action : "Task"), task() && badge(task().state), id(taskId), copyButton(taskId, "the id of the task"),
        h("span", { class: "spacer" }),
        mayCancel() && h("button", { class: "danger", onclick: cancel }, "Cancel…")),
      reading.state === "missing" ? missing() : shown(reading, "The task", details),
    ];
  }

  function missing() {
    return empty("There is no such task",
      "It is neither at hand nor in the archive: its id is not quite this, it is another agent's, or it was over so long ago that it was forgotten (see [retention] in the settings).",
      h("a", { class: "button plain", href: "#/tasks" }, "All tasks"));
  }

  function details(task) {
    return [
      failure(task),
      h("div", { class: "columns", key: "about" },
        h("div", null, about(task), task.steps ? null : parameters(task)),
        h("div", null, times(task), webhook(task))),
      task.steps ? steps(task) : result(task),
      archived(task),
    ];
  }

  function archived(task) {
    const kept = store.of("scheduler").data?.config.resultTTLSec;
    if (!task.completedAt || !kept || since(task.completedAt) < 1_000 * kept) return null;
    return h("p", { class: "quiet small", key: "archived" },
      `It has been over for more than ${duration(1_000 * kept)}: it is in the archive, and no longer in the list of tasks.`);
  }

  return {
    watch: ["scheduler"],
    view,
    keys: {
      x: { title: "cancel the task", run: cancel },
      c: { title: "copy the id of the task", run: () => copy(taskId, "the id of the task") },
    },
    close() {
      unlisten();
      reading.stop();
    },
  };
}

// --- Parts ----------------------------------------------------------------------------------------------------

function failure(task) {
  if (!task.error && !task.code) return null;
  // A step says better what can be done than its code alone does.
  const step = (Array.isArray(task.result) && task.steps ? task.result : []).find((one) => one?.error);
  const next = step?.error.action || NEXT_STEPS[task.code];
  return h("section", { class: `notice ${task.state === "done" ? "busy" : "bad"} failure`, key: "failure", role: "alert", "data-code": task.code || "" },
    h("p", null, h("b", null, task.error || task.state), " ", task.code && h("code", null, task.code)),
    next && h("p", { class: "next-step" }, next));
}

function about(task) {
  const tab = task.tabId && h("a", { href: `#/tabs/${encodeURIComponent(task.tabId)}` }, h("code", null, task.tabId));
  const where = tab || (task.sessionId ? ["the first tab of ", id(task.sessionId)] : "a tab that is leased for it");
  return card("About", h("dl", { class: "facts" },
    fact("Agent", h("a", { href: `#/tasks?agent=${encodeURIComponent(task.agentId)}` }, task.agentId)),
    fact("Runs on", where),
    task.position !== null && fact("Place", `number ${count(task.position)}${task.etaMs ? `, in about ${duration(task.etaMs)}` : ", next"}`),
    fact("Priority", count(task.priority)),
    fact("Attempts", task.attempts ? count(task.attempts) : "not started yet")));
}

function parameters(task) {
  const aimed = { ...(task.selector ? { selector: task.selector } : {}), ...(task.ref ? { ref: task.ref } : {}) };
  const all = Object.entries({ ...aimed, ...task.params });
  return card("What it is to do", all.length === 0
    ? h("p", { class: "quiet" }, h("code", null, task.action), ", as it comes")
    : h("dl", { class: "facts" }, all.map(([name, value]) => fact(name, plain(value)))));
}

function times(task) {
  const [created, started] = [Date.parse(task.createdAt), task.startedAt && Date.parse(task.startedAt)];
  const end = task.completedAt ? Date.parse(task.completedAt) : created + since(task.createdAt);
  const waited = Math.max(0, (started || end) - created);
  const ran = started ? Math.max(0, end - started) : 0;
  const share = (ms) => `${((100 * ms) / Math.max(1, waited + ran)).toFixed(1)}%`;
  const isOver = OVER.has(task.state);
  const point = (name, at, words, mood = "") => h("li", { key: name, class: mood, "data-moment": name }, h("b", null, name), h("time", { datetime: at || "", title: at ? new Date(at).toLocaleString() : "" }, at ? clock(at) : ""), h("span", { class: "quiet" }, words));
  return card("When",
    h("div", { class: "spans", role: "img", "aria-label": `Waited ${duration(waited)}, ran ${duration(ran)}` },
      h("i", { class: "waited", style: { width: share(waited) } }), h("i", { class: `ran ${task.state}`, style: { width: share(ran) } })),
    h("ol", { class: "timeline" },
      point("Submitted", task.createdAt, `${duration(since(task.createdAt))} ago`),
      point("Started", task.startedAt, started ? `after ${duration(waited)} of waiting` : isOver ? "never" : `not yet, waiting for ${duration(waited)}`),
      point(isOver ? task.state[0].toUpperCase() + task.state.slice(1) : "Over", task.completedAt, isOver ? `after ${duration(task.latencyMs)}, ${duration(ran)} of them at work` : started ? `not yet, at work for ${duration(ran)}` : "not yet", isOver ? task.state : ""),
      deadline(task, point, end)));
}

function deadline(task, point, end) {
  const spare = Date.parse(task.deadline) - end;
  const words = OVER.has(task.state) ? `${duration(spare)} to spare` : `in ${duration(spare)}`;
  return point("Deadline", task.deadline, spare > 0 ? words : "passed", spare > 0 ? "" : "failed");
}

function webhook(task) {
  if (!task.callbackUrl) return null;
  const { webhook: told } = task;
  return card("Webhook", h("dl", { class: "facts" },
    fact("Told to", plain(task.callbackUrl)),
    fact("State", told ? badge(told.state) : h("span", { class: "quiet" }, OVER.has(task.state) ? "–" : "when it is over")),
    told && fact("Attempts", count(told.attempts)),
    told?.error && fact("Last failure", told.error),
    told?.nextAttemptAt && fact("Tried again", within(told.nextAttemptAt))));
}

function result(task) {
  if (!OVER.has(task.state)) return null;
  if (task.state !== "done" && task.result === null) return null;
  return card("Result", valueView(task.result, { kind: task.action, name: task.taskId }));
}

// What each step is, and what came of it; of those after one that failed, that they were not reached.
function steps(task) {
  const ends = Array.isArray(task.result) ? task.result : [];
  const isOver = OVER.has(task.state);
  return card(`${count(task.steps.length)} steps`, h("ol", { class: "steps" }, task.steps.map((step, index) => {
    const end = ends[index];
    const { kind, ...rest } = step;
    return h("li", { key: `${index}`, "data-step": index },
      h("div", { class: "bar" }, h("b", null, kind), end ? badge(end.ok ? "done" : "failed") : isOver ? badge("not reached") : null, told(rest)),
      end?.error && h("p", { class: "bad-text" }, end.error.message, " ", h("code", null, end.error.code)),
      end?.ok && end.result !== null && valueView(end.result, { kind, name: `${task.taskId}-${index + 1}`, isPart: true }));
  })));
}

// What was said about a step, without what is so anyway.
function told(fields) {
  const said = Object.entries(fields).filter(([name, value]) => value !== null && value !== false && USUAL[name] !== value && !(Array.isArray(value) && value.length === 0));
  return said.map(([name, value]) => h("span", { key: name }, h("span", { class: "quiet" }, `${name} `), plain(value)));
}

const plain = (value) => h("code", { class: "said" }, (typeof value === "string" ? value : pretty(value)).slice(0, 4_000));
const card = (name, ...content) => h("section", { class: "card", key: name }, h("h2", null, name), content);
const fact = (name, value) => [h("dt", null, name), h("dd", null, value)];

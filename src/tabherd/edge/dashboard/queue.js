// The queue at a glance: what waits and runs, for whom, how fast it goes, and the settings that decide it.

import { h } from "./dom.js";
import { count, duration } from "./format.js";

const AGENTS_SHOWN = 8;

// stats: what GET /scheduler/stats says; `choose` is called with an agent that was clicked.
export function queueView({ stats, curves, isAdmin, chosen, choose }) {
  const { queue, metrics, config } = stats;
  return h("section", { class: "queue", key: "queue", "aria-label": "Queue" },
    config.enabled === false &&
      h("p", { class: "notice busy", role: "status" }, "The scheduler is switched off: tasks are neither taken nor started, and those that wait stay. ", isAdmin && h("a", { href: "#/config?text=scheduler.enabled" }, "Switch it on")),
    h("div", { class: "cards tiles" },
      tile("Waiting", count(queue.totalQueued), `room for ${count(Math.max(0, config.maxQueueSize - queue.totalQueued))} more`, curves?.view("tasksQueued", "Waiting", count)),
      tile("Running", count(queue.totalInflight), `of ${count(config.workerCount)} at once`, meter(queue.totalInflight, config.workerCount)),
      tile("Done", rate(curves?.recent("tasksDone")), `${count(metrics.tasksCompleted)} since the start`, curves?.view("tasksDone", "Done", rate)),
      tile("Failed", rate(curves?.recent("tasksFailed")), failures(metrics), curves?.view("tasksFailed", "Failed", rate), metrics.tasksFailed > 0),
      tile("Wait for a start", metrics.dispatchTotal ? duration(metrics.avgDispatchLatencyMs) : "–", `mean of ${count(metrics.dispatchTotal)} that started`)),
    agents(queue.agents, chosen, choose),
    h("p", { class: "quiet small" },
      [
        `One agent: ${count(config.maxPerAgentInflight)} at once, ${count(config.maxPerAgent)} waiting`,
        `${duration(config.defaultDeadlineMs)} to the deadline unless named`,
        config.priorityAgingMs ? `${duration(config.priorityAgingMs)} of waiting make up for a level of priority` : "priorities are strict",
        `results at hand for ${duration(1_000 * config.resultTTLSec)}`,
      ].join(" · ")));
}

function tile(name, figure, note, drawn, isBad = false) {
  return h("div", { class: "card tile", key: name, "data-tile": name },
    h("span", { class: "quiet small" }, name),
    h("span", { class: "figure" }, figure),
    h("span", { class: `small ${isBad ? "bad-text" : "quiet"}` }, note),
    drawn);
}

const meter = (number, most) =>
  h("div", { class: `meter${number >= most ? " full" : ""}`, role: "meter", "aria-label": "Workers that are busy", "aria-valuemin": 0, "aria-valuemax": most, "aria-valuenow": number },
    h("i", { style: { width: `${Math.min(100, (100 * number) / Math.max(1, most))}%` } }));

function failures({ tasksFailed, tasksExpired, tasksCancelled, tasksRejected }) {
  const words = [
    tasksFailed && `${count(tasksFailed)} failed${tasksExpired ? `, ${count(tasksExpired)} of them too late` : ""}`,
    tasksCancelled && `${count(tasksCancelled)} cancelled`,
    tasksRejected && `${count(tasksRejected)} rejected`,
  ].filter(Boolean);
  return words.length ? words.join(", ") : "none since the start";
}

function agents(all, chosen, choose) {
  const busy = Object.entries(all)
    .filter(([, agent]) => agent.queued || agent.inflight)
    .sort(([, one], [, other]) => other.queued - one.queued || other.inflight - one.inflight);
  if (busy.length === 0) return null;
  return h("div", { class: "bar", role: "group", "aria-label": "Agents with tasks" },
    busy.slice(0, AGENTS_SHOWN).map(([agentId, agent]) =>
      h("button", {
        class: "plain small", key: agentId, "data-agent": agentId, "aria-pressed": String(agentId === chosen), title: `Only tasks of ${agentId}`,
        onclick: () => choose(agentId === chosen ? "" : agentId),
      }, h("b", null, agentId), ` ${[agent.queued && `${count(agent.queued)} waiting`, agent.inflight && `${count(agent.inflight)} running`].filter(Boolean).join(", ")}`)),
    busy.length > AGENTS_SHOWN && h("span", { class: "quiet small" }, `and ${count(busy.length - AGENTS_SHOWN)} more agents`));
}

const rate = (number) => (number === null || number === undefined ? "–" : `${number >= 10 || number === 0 ? Math.round(number) : number.toFixed(1)} /s`);

// Who has what and waits for what, put together from what the store has read about tabs, pools, tasks and locks.

import { h } from "./dom.js";
import { brief, count, duration, since } from "./format.js";
import { holding, tabLink } from "./stuck.js";

// So many busy tabs, places and locks of an agent are told one by one, the others counted.
const TOLD_MAX = 3;

// [{agentId, holds: [lines], waits: [lines]}], those who wait first, then by name.
export function agentsOf({ tabs, stats, scheduler, locks }) {
  const agents = new Map();
  const of = (agentId) => {
    if (!agents.has(agentId)) {
      agents.set(agentId, { agentId, sessions: new Set(), tabs: [], behind: [], places: [], locks: [], queued: 0, inflight: 0 });
    }
    return agents.get(agentId);
  };
  for (const tab of tabs) {
    of(tab.agentId).sessions.add(tab.sessionId);
    of(tab.agentId).tabs.push(tab);
    for (const waiter of tab.waiters) of(waiter.agentId).behind.push({ tab, waiter });
  }
  for (const [pool, about] of Object.entries(stats?.pools || {})) {
    for (const waiter of about.waiters) of(waiter.agentId).places.push({ pool, waiter });
  }
  for (const [agentId, queue] of Object.entries(scheduler?.queue.agents || {})) {
    if (queue.queued || queue.inflight) Object.assign(of(agentId), queue);
  }
  for (const lock of locks || []) if (lock.agentId) of(lock.agentId).locks.push(lock);
  return [...agents.values()]
    .map((agent) => ({ agentId: agent.agentId, holds: holds(agent), waits: waits(agent) }))
    .sort((one, other) => (other.waits.length > 0) - (one.waits.length > 0) || one.agentId.localeCompare(other.agentId));
}

function holds(agent) {
  const busy = agent.tabs.filter((tab) => tab.holder).sort((one, other) => one.holder.since.localeCompare(other.holder.since));
  const lines = [];
  if (agent.tabs.length) lines.push(`${some(agent.sessions.size, "session")}, ${some(agent.tabs.length, "tab")}`);
  lines.push(...told(busy, (tab) => [tabLink(tab.tabId, brief(tab.tabId)), ` ${holding(tab.holder)}, ${duration(since(tab.holder.since))}`]));
  lines.push(...told(agent.locks, (lock) => ["lock ", h("code", null, lock.name), lock.waiters > 0 && `, ${lock.waiters} behind it`]));
  if (agent.inflight) lines.push(`${some(agent.inflight, "task")} at work`);
  return lines;
}

function waits(agent) {
  const lines = told(agent.places, ({ pool, waiter }) =>
    `a session in ${pool}: number ${waiter.position}, expected in ${duration(waiter.expectedWaitMs)}`);
  lines.push(...told(agent.behind, ({ tab, waiter }) => [tabLink(tab.tabId, brief(tab.tabId)), ` number ${waiter.position}, for ${duration(since(waiter.since))}`]));
  if (agent.queued) lines.push(`${some(agent.queued, "task")} in the queue`);
  return lines;
}

function told(list, line) {
  const lines = list.slice(0, TOLD_MAX).map(line);
  if (list.length > TOLD_MAX) lines.push(`and ${list.length - TOLD_MAX} more`);
  return lines;
}

const some = (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;

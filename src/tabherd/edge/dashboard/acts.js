// What can be done to tabs, sessions and locks, each with the question before it: what happens to whom.
//
// Each resolves to whether it was done. Who may not is not offered it, and would be refused by the server.

import { post, remove } from "./api.js";
import { act } from "./dialog.js";
import { holderOf, nameOf, pathOf, spoken } from "./tab-words.js";

const sessionPath = (sessionId) => `/sessions/${encodeURIComponent(sessionId)}`;
const waiting = (count) => (count === 0 ? "" : count === 1 ? " One command waits for it" : ` ${count} commands wait for it`);

// Whose session it is decides what one may do with it.
export const isMine = (me, { agentId }) => me.isAdmin || me.agentId === agentId;

// --- Tabs -----------------------------------------------------------------------------------------------------

export function handOff(tab) {
  const behind = tab.waiters.length ? `${waiting(tab.waiters.length)} and will go on waiting, each for as long as it said.` : "";
  return act({
    title: `Take “${nameOf(tab)}” over?`,
    body: `What runs in the tab finishes first. From then on ${tab.agentId}'s commands are refused or wait, until you give the tab back.${behind}`,
    verb: "Hand off",
    isDangerous: false,
  }, () => post(`${pathOf(tab.tabId)}/handoff`, {}), "Agents are paused on this tab.");
}

export function giveBack(tab) {
  return act({
    title: `Give “${nameOf(tab)}” back?`,
    body: `${tab.agentId} and whoever waits go on with the page as it is now.${waiting(tab.waiters.length)}${tab.waiters.length ? "." : ""}`,
    verb: "Give back",
    isDangerous: false,
  }, () => post(`${pathOf(tab.tabId)}/resume`), "The tab is given back.");
}

export function cancelCommand(tab) {
  const { holder } = tab;
  return act({
    title: `Cancel ${spoken(holder.kind)} on “${nameOf(tab)}”?`,
    body: `Whoever sent it hears that it was cancelled. If it has touched the page already, the page is replaced by a fresh one at the same address: what was typed there is lost.`,
    verb: "Cancel the command",
  }, () => post(`/commands/${encodeURIComponent(holder.commandId)}/cancel`), "The command is cancelled.");
}

export function freeTabLock(tab) {
  const { holder } = tab;
  return act({
    title: `Free the lock on “${nameOf(tab)}”?`,
    body: `${holderOf(tab)} loses the tab lock at once and without being asked: its next use of it is answered lock_not_found. A command of it that runs finishes first.${waiting(tab.waiters.length)}${tab.waiters.length ? " and the first has its turn then." : ""}`,
    verb: "Free the lock",
  }, () => remove(`${pathOf(tab.tabId)}/lock`, { force: true, holder: holder.controllerId }), "The tab lock is free.");
}

export function closeTab(tab) {
  const fate = tab.provenance === "borrowed" ? "It was borrowed from the browser's user and is only let go." : "What its page has not sent or stored is lost.";
  return act({
    title: `Close “${nameOf(tab)}”?`,
    body: `${fate} The session of ${tab.agentId} goes on with its other tabs.${waiting(tab.waiters.length)}${tab.waiters.length ? " and will be turned away." : ""}`,
    verb: "Close the tab",
  }, () => remove(pathOf(tab.tabId)), "The tab is closed.");
}

// --- Sessions -------------------------------------------------------------------------------------------------

export function releaseSession({ sessionId, agentId, fence }, tabs) {
  const behind = tabs.reduce((sum, tab) => sum + (tab.waiters?.length || 0), 0);
  const runs = tabs.some((tab) => tab.holder?.commandId);
  return act({
    title: `Release the session of ${agentId}?`,
    body: [
      `${agentId} loses ${sessionId} with ${tabs.length === 1 ? "its tab" : `its ${tabs.length} tabs`} at once, and hears lease_lost from then on.`,
      runs && "A command that runs in it is cut off.",
      behind > 0 && `${behind === 1 ? "The one who waits" : `The ${behind} who wait`} for its tabs ${behind === 1 ? "is" : "are"} turned away.`,
    ].filter(Boolean).join(" "),
    verb: "Release",
  }, () => remove(sessionPath(sessionId), { fence }), `The session of ${agentId} is released.`);
}

export function takeOver({ sessionId, agentId }) {
  return act({
    title: `Give the session of ${agentId} to another agent?`,
    body: `${agentId} is shut out at once: its connections are closed, its locks are free, and it hears lease_lost. The other agent has the same tabs under a larger fence.`,
    verb: "Take over",
    field: "Agent that gets it",
  }, (name) => post(`${sessionPath(sessionId)}/takeover`, { agentId: name }), "The session has another owner.");
}

// --- Named locks ----------------------------------------------------------------------------------------------

export function freeLock(lock) {
  const next = lock.waiters ? ` Then the first of ${lock.waiters} who wait has it, under a larger fence.` : " Nobody waits for it.";
  return act({
    title: `Free the lock ${lock.name}?`,
    body: `${lock.holder} loses it at once and without being asked, and may still be using what it protects: its next renewal is answered lock_lost.${next}`,
    verb: "Free the lock",
  }, () => remove(`/locks/${encodeURIComponent(lock.name)}`, { force: true, fence: lock.fence }), `${lock.name} is free.`);
}

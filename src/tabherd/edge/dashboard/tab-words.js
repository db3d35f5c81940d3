// A tab in words: what its page is, who has it and why, who waits, and how much it wants a look.
//
// Nothing here asks the server or changes anything. What a page calls itself is somebody else's text: it stays text.

import { h } from "./dom.js";
import { duration, since, until } from "./format.js";

// From here on a command that holds a tab counts in the order of the board; shorter ones would only make rows jump.
const SHORT_MS = 1_000;
// From here on a wait behind somebody, and a hold that hurts nobody yet, are worth a look.
const LONG_WAIT_MS = 5_000;
const LONG_HOLD_MS = 30_000;
const KEPT_BY_PERSON = "handoff";
// A name that a library gave itself: its first letters tell it from others, the rest says nothing to anybody.
const MINTED = /^(.*-[0-9a-f]{6})[0-9a-f]{10,}$/;

export const pathOf = (tabId) => `/tabs/${encodeURIComponent(tabId)}`;

// Host and port, or what kind of address it is.
export function hostOf(url) {
  try {
    const { host, protocol, pathname } = new URL(url);
    return host || (protocol === "about:" ? `about:${pathname}` : protocol);
  } catch {
    return url;
  }
}

export const nameOf = (tab) => tab.title || (tab.url === "about:blank" ? "Blank page" : hostOf(tab.url));

// Who that is, as people know it: the agent, and the name that its connection gave itself, if it did. The credential's
// own id and the address of a connection say nothing to anybody.
export function partyOf({ agentId, controllerId }, owner = "") {
  const own = (controllerId || "").replace(/^crd_\w+\/?/, "").replace(MINTED, "$1…");
  const isAddress = /:\d+$/.test(own);
  const agent = agentId || owner;
  return !own || isAddress || own === agent ? agent || controllerId : agent ? `${agent}/${own}` : own;
}

// Who has the tab: of a handoff, the person.
export const holderOf = (tab) => (tab.holder.reason === KEPT_BY_PERSON ? tab.holder.controllerId || "A person" : partyOf(tab.holder, tab.agentId));

// How long it has been held, in milliseconds; 0: it is free.
export const heldMs = (tab) => (tab.holder ? Math.max(0, since(tab.holder.since)) : 0);

// --- How much it wants a look ---------------------------------------------------------------------------------

export const isBroken = (tab) => tab.state === "quarantined" || tab.state === "dead" || tab.holder?.reason === "quarantine";

// bad, busy, or empty: it can be left alone.
export function urgency(tab) {
  const held = heldMs(tab);
  if (isBroken(tab)) return "bad";
  if (tab.waiters.length > 0 && held > LONG_HOLD_MS) return "bad";
  if (tab.waiters.length > 0 && held > LONG_WAIT_MS) return "busy";
  if (tab.state === "rebuilding") return "busy";
  return held > LONG_HOLD_MS ? "busy" : "";
}

// Trouble first: broken ones, then those with the longest line, then those that are held the longest.
export function byTrouble(tabs) {
  const rank = (tab) => {
    const held = heldMs(tab);
    const isHeld = tab.holder && (tab.holder.reason !== "command" || held > SHORT_MS);
    return [isBroken(tab) ? 1 : 0, tab.waiters.length, isHeld ? 1 : 0, isHeld ? Date.parse(tab.holder.since) : 0];
  };
  return tabs
    .map((tab) => [rank(tab), tab])
    .sort(([one, a], [other, b]) =>
      other[0] - one[0] || other[1] - one[1] || other[2] - one[2] || one[3] - other[3] ||
      a.agentId.localeCompare(b.agentId) || (a.tabId < b.tabId ? -1 : 1))
    .map(([, tab]) => tab);
}

// --- Why ------------------------------------------------------------------------------------------------------

// What has the tab and what that means for whoever comes next, in a sentence or two.
export function situation(tab) {
  const { holder } = tab;
  if (tab.state === "dead") {
    return "The page died, and its session does not allow it to be opened again. Close the tab, or release the session.";
  }
  if (!holder) return tab.state === "ready" ? "Nobody has the tab: the next command runs at once." : `The tab is ${tab.state}.`;
  const lasted = duration(heldMs(tab));
  const what = holder.kind ? `${spoken(holder.kind)} ` : "";
  switch (holder.reason) {
    case "quarantine":
      return `A command timed out ${lasted} ago and is not proven stopped yet. So that it cannot act together with another one, nothing runs here until it has stopped or its page is replaced.`;
    case "rebuild":
      return `The page died ${lasted} ago and is being opened again at its last address; whoever waits goes on then.`;
    case KEPT_BY_PERSON:
      return `The tab was handed off to ${holderOf(tab)} ${lasted} ago. Agents wait until it is given back${holder.kind ? `; ${what}still finishes` : ""}.`;
    case "tab_lock":
      return `${holderOf(tab)} has locked the tab for ${lasted}${holder.kind ? ` and runs ${what.trim()} in it` : ""}. ${lockEnd(holder)}`;
    default:
      return `${holderOf(tab)} has been running ${what || "a command "}for ${lasted}.`;
  }
}

function lockEnd(holder) {
  const left = until(holder.expiresAt);
  return left > 0 ? `The lock ends in ${duration(left)} unless it is renewed.` : "The lock is about to end.";
}

export const spoken = (kind) => kind.replaceAll("_", " ");

// "1 bob (click) · 2 cyd (navigate) and 3 more"
export function line(waiters, most = 3) {
  if (waiters.length === 0) return "";
  const first = waiters.slice(0, most).map((waiter) => `${waiter.position} ${partyOf(waiter)} (${spoken(waiter.kind)})`);
  return first.join(" · ") + (waiters.length > most ? ` and ${waiters.length - most} more` : "");
}

// When a newcomer may expect its turn, in milliseconds; 0: at once; null: nobody can tell, since that depends on a
// person, or on a command that has long outlasted what was expected of it.
export const turnMs = (tab) => (tab.holder?.reason === KEPT_BY_PERSON || isOverdue(tab) ? null : tab.expectedWaitMs);

const isOverdue = (tab) => tab.holder?.reason === "command" && heldMs(tab) > Math.max(LONG_WAIT_MS, tab.expectedWaitMs);

// Two lines of one cell.
export const two = (first, second) => h("span", { class: "two" }, h("span", null, first), h("small", { class: "quiet" }, second));

// Whether anything is stuck: one finding for each question that an operator has at three in the morning.
//
// Nothing here draws or asks; it looks at what the store has read. A finding is {name, question, mood (good, busy, bad),
// answer}, where the answer is made of words and links.

import { count, duration, since } from "./format.js";
import { h } from "./dom.js";
import { holderOf, partyOf } from "./tab-words.js";

// From here on a wait or a hold that others wait behind is worth a look.
const LONG_WAIT_MS = 60_000;
const LONG_HOLD_MS = 30_000;
// From here on a tab that waits for a person may have been forgotten.
const LONG_HANDOFF_MS = 60_000;
// So many are named, the others counted.
const NAMED_MAX = 3;
const HOLDS = { command: "a command", tab_lock: "a tab lock", quarantine: "a quarantine", rebuild: "a rebuild", handoff: "a person" };

export const tabLink = (tabId, word = h("code", null, tabId)) => h("a", { href: `#/tabs/${encodeURIComponent(tabId)}` }, word);

export function findings({ stats, tabs, browsers, nodes, isAdmin }) {
  // An agent sees no others than its own.
  const which = isAdmin ? "" : " of yours";
  return [
    stats.data && longestWait(stats.data),
    tabs.data && longestHold(tabs.data, which),
    tabs.data && handedOff(tabs.data, which),
    tabs.data && brokenTabs(tabs.data, which),
    browsers.data && brokenBrowsers(browsers.data),
    nodes.data && silentNodes(nodes.data, [stats, tabs, browsers].flatMap((resource) => resource.unreachable)),
    nodes.data && draining(nodes.data),
  ].filter(Boolean);
}

// The worst of them.
export function verdict(found) {
  if (found.some((one) => one.mood === "bad")) return { mood: "bad", words: "Something needs a look" };
  if (found.some((one) => one.mood === "busy")) return { mood: "busy", words: "Busy, but nothing is stuck" };
  return { mood: "good", words: "Nothing is stuck" };
}

// --- One each -------------------------------------------------------------------------------------------------

function longestWait(stats) {
  const pools = Object.entries(stats.pools).filter(([, pool]) => pool.waitingSince);
  const [name, pool] = pools.sort(([, one], [, other]) => one.waitingSince.localeCompare(other.waitingSince))[0] || [];
  const question = "Longest wait for a session";
  if (!pool) return { name: "wait", question, mood: "good", answer: "nobody waits" };
  const waited = since(pool.waitingSince);
  const next = pool.waiters[0];
  return {
    name: "wait",
    question,
    mood: waited > LONG_WAIT_MS ? "bad" : "busy",
    answer: [
      h("b", null, duration(waited)), ` in pool ${name}, where ${pool.active} of ${pool.capacity} places are taken and ${pool.waiting} ${pool.waiting === 1 ? "waits" : "wait"}`,
      next && `; ${next.agentId} is number ${next.position}, expected in ${duration(next.expectedWaitMs)}`,
    ],
  };
}

function longestHold(tabs, which) {
  // A tab that a person has and that nobody waits for is told of below.
  const held = tabs.filter((tab) => tab.holder && (tab.waiters.length > 0 || !isHandedOff(tab)));
  // One that somebody waits behind comes before one that hurts nobody.
  held.sort((one, other) => (other.waiters.length > 0) - (one.waiters.length > 0) || one.holder.since.localeCompare(other.holder.since));
  const [tab] = held;
  const question = `Longest held tab${which}`;
  if (!tab) return { name: "hold", question, mood: "good", answer: "no tab is held" };
  const { holder, waiters } = tab;
  const lasted = since(holder.since);
  const isLong = lasted > LONG_HOLD_MS;
  return {
    name: "hold",
    question,
    mood: waiters.length === 0 ? (isLong ? "busy" : "good") : isLong ? "bad" : "busy",
    answer: [
      tabLink(tab.tabId), ` of ${tab.agentId}: `, h("b", null, duration(lasted)), ` by ${holding(holder)}; `,
      waiters.length === 0 ? "nobody waits behind it" : `behind it: ${named(waiters.map((waiter) => `${waiter.agentId} (${waiter.kind.replaceAll("_", " ")})`))}`,
    ],
  };
}

const isHandedOff = (tab) => tab.holder?.reason === "handoff";

// Whether somebody really drives it is not known here: after a while a person had better look.
function handedOff(tabs, which) {
  const waiting = tabs.filter(isHandedOff).sort((one, other) => one.holder.since.localeCompare(other.holder.since));
  const question = `Tabs${which} that wait for a person`;
  if (waiting.length === 0) return { name: "handoff", question, mood: "good", answer: "none" };
  return {
    name: "handoff",
    question,
    mood: since(waiting[0].holder.since) > LONG_HANDOFF_MS ? "bad" : "busy",
    answer: [
      ...waiting.slice(0, NAMED_MAX).flatMap((tab, index) =>
        [index > 0 && ", ", tabLink(tab.tabId), ` of ${tab.agentId}: handed off to ${holderOf(tab)} `, h("b", null, duration(since(tab.holder.since))), " ago"]),
      more(waiting),
    ],
  };
}

// What has a tab, in words.
export function holding(holder) {
  const words = HOLDS[holder.reason] || holder.reason;
  const who = holder.controllerId && holder.reason !== "command" ? ` (${partyOf(holder)})` : "";
  return `${words}${who}${holder.kind ? `, ${holder.kind}` : ""}`;
}

function brokenTabs(tabs, which) {
  const broken = tabs.filter((tab) => ["quarantined", "dead"].includes(tab.state));
  return {
    name: "tabs",
    question: `Quarantined or dead tabs${which}`,
    mood: broken.length ? "bad" : "good",
    answer: broken.length
      ? [...broken.slice(0, NAMED_MAX).flatMap((tab, index) => [index > 0 && ", ", tabLink(tab.tabId), ` of ${tab.agentId} is ${tab.state}`]), more(broken)]
      : "none",
  };
}

function brokenBrowsers(browsers) {
  const ailing = browsers
    .map((browser) => [browser, ailment(browser)])
    .filter(([, words]) => words);
  const ready = browsers.filter((browser) => browser.state === "ready").length;
  return {
    name: "browsers",
    question: "Broken browsers",
    mood: ailing.length ? "bad" : ready ? "good" : "busy",
    answer: ailing.length
      ? [...ailing.slice(0, NAMED_MAX).flatMap(([browser, words], index) => [index > 0 && "; ", h("a", { href: "#/browsers" }, h("code", null, browser.browserId)), ` ${words}`]), more(ailing)]
      : ready ? `none; ${ready} ${ready === 1 ? "is" : "are"} ready` : "none, but none is ready yet",
  };
}

// What is wrong with a browser; empty when nothing is.
export function ailment(browser) {
  if (browser.state === "broken" || browser.circuit === "open") return `kept dying and is not started for a while: ${browser.lastFailure}`;
  if (browser.state === "crashed") return `crashed: ${browser.lastFailure}`;
  if (browser.suspect) return "has missed a probe and gets nothing new until it answers";
  return "";
}

function silentNodes(nodes, unreachable) {
  const silent = nodes.filter((node) => node.state === "silent" || node.state === "dead");
  const mute = [...new Set(unreachable)].filter((nodeId) => !silent.some((node) => node.nodeId === nodeId));
  const words = [
    ...silent.map((node) => `${node.nodeId} is ${node.state}${node.beatAgeMs === null ? "" : `, last heard of ${duration(node.beatAgeMs)} ago`}`),
    ...mute.map((nodeId) => `${nodeId} does not answer`),
  ];
  const up = nodes.filter((node) => node.state === "up").length;
  return {
    name: "nodes",
    question: "Silent nodes",
    mood: words.length ? "bad" : "good",
    answer: words.length ? [named(words, "; "), " ", h("a", { href: "#/nodes" }, "nodes")] : nodes.length > 1 ? `none; ${up} of ${nodes.length} are up` : "none",
  };
}

function draining(nodes) {
  const leaving = nodes.filter((node) => node.state === "draining");
  return {
    name: "draining",
    question: "Draining",
    mood: leaving.length ? "busy" : "good",
    answer: leaving.length
      ? [named(leaving.map((node) => `${node.isSelf ? "this node" : node.nodeId} admits no new session, ${count(node.sessions)} still open`), "; "), " ", h("a", { href: "#/nodes" }, "nodes")]
      : "no",
  };
}

const more = (list) => list.length > NAMED_MAX && ` and ${list.length - NAMED_MAX} more`;

function named(words, between = ", ") {
  return words.slice(0, NAMED_MAX).join(between) + (words.length > NAMED_MAX ? ` and ${words.length - NAMED_MAX} more` : "");
}

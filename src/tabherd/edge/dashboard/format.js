// Numbers, times and states as people read them.

import { serverNow } from "./api.js";
import { h } from "./dom.js";

// Made once: asking a number for its local spelling makes one each time.
const SPELLING = new Intl.NumberFormat("en");

export const count = (number) => (number === null || number === undefined ? "–" : SPELLING.format(number));

export function bytes(number) {
  if (number === null || number === undefined) return "–";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (number >= 1024 && unit < units.length - 1) {
    number /= 1024;
    unit += 1;
  }
  return `${number >= 100 || unit === 0 ? Math.round(number) : number.toFixed(1)} ${units[unit]}`;
}

// A length of time: 12 ms, 3.4 s, 5 min, 2 h 10 min, 3 d.
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 10_000) return `${(ms / 1_000).toFixed(1)} s`;
  if (ms < 60_000) return `${Math.round(ms / 1_000)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h${minutes % 60 ? ` ${minutes % 60} min` : ""}`;
  return `${Math.floor(minutes / 1440)} d`;
}

// How long ago that was, or how long until then, in milliseconds by the server's clock.
export const since = (at) => (at ? serverNow() - Date.parse(at) : null);
export const until = (at) => (at ? Date.parse(at) - serverNow() : null);

export const clock = (at) => (at ? new Date(at).toLocaleTimeString("en-GB", { hour12: false }) : "–");

// "12 s" with the moment itself to hover over.
export function ago(at) {
  if (!at) return h("span", { class: "quiet" }, "–");
  return h("time", { datetime: at, title: new Date(at).toLocaleString() }, duration(Math.max(0, since(at))));
}

export function within(at) {
  if (!at) return h("span", { class: "quiet" }, "–");
  const left = until(at);
  return h("time", { datetime: at, title: new Date(at).toLocaleString() }, left > 0 ? `in ${duration(left)}` : "over");
}

// An id: short enough for a table, whole to hover over and to copy.
export const id = (text) => (text ? h("code", { class: "id", title: text }, text) : h("span", { class: "quiet" }, "–"));

// The same where there is little room. Ids of one time begin alike: what tells them apart is at their end.
export const brief = (text) => h("code", { class: "id", title: text }, text.replace(/^([a-z]+_).{8,}(.{6})$/, "$1…$2"));

const MOODS = {
  good: ["ready", "active", "done", "up", "completed", "closed", "live", "delivered", "held"],
  busy: ["opening", "starting", "running", "assigned", "queued", "recovering", "rebuilding", "draining", "pooled",
    "paused", "command", "tab_lock", "handoff", "pending", "half_open", "closing", "silent"],
  bad: ["crashed", "broken", "dead", "failed", "rejected", "quarantined", "quarantine", "suspect", "lost", "open", "rebuild"],
};
const MOOD_OF = new Map(Object.entries(MOODS).flatMap(([mood, states]) => states.map((state) => [state, mood])));

// A state as a small label: its word says it, its colour only helps.
export const badge = (state, mood) =>
  h("span", { class: `badge ${mood || MOOD_OF.get(state) || "quiet"}` }, String(state).replaceAll("_", " "));

// The curves of the last minutes: read whole once, after that only what is new.

import { get } from "./api.js";
import { h } from "./dom.js";
import { spark } from "./spark.js";

// As many intervals as the server keeps.
const INTERVALS = 300;
// The axis is at least that long: two points are no curve.
const AXIS_MIN = 60;
// A figure is what the last ten seconds came to.
const RECENT = 5;
// A percentile is shown as long as some command of the last minute speaks for it.
const FRESH = 30;

export class Curves {
  // `changed` is called when there is something new to draw.
  constructor(changed) {
    this.changed = changed;
    this.intervalMs = 2_000;
    // The number since 1970 of the interval after the last one that is known.
    this.end = 0;
    // Numbers and nulls by name, oldest first, all of the same length.
    this.series = {};
    // The last answer that was taken, so that each is taken once.
    this.taken = null;
    this.isReading = false;
    // Drawn once for each answer, not with each tick of the clock.
    this.drawn = new Map();
  }

  // What the store has read: the last few intervals. If there is a gap before them, all are read.
  take(tail) {
    if (!tail || tail === this.taken) return;
    this.taken = tail;
    if (this.numberOf(tail) > this.end) this.read();
    else this.merge(tail);
  }

  async read() {
    if (this.isReading) return;
    this.isReading = true;
    try {
      this.merge(await get("/history"));
      this.changed();
    } catch {
      // The next look at the tail finds the same gap and leads here again.
    }
    this.isReading = false;
  }

  numberOf(said) {
    return Math.round(Date.parse(said.from) / said.intervalMs);
  }

  merge(said) {
    const begin = this.numberOf(said);
    for (const [name, numbers] of Object.entries(said.series)) {
      const known = this.series[name] || Array(INTERVALS).fill(null);
      // A server that was restarted begins anew, and one whose clock was put back begins earlier.
      const kept = begin <= this.end ? known.slice(0, Math.max(0, known.length - (this.end - begin))) : known;
      const gap = Array(Math.max(0, Math.min(INTERVALS, begin - this.end))).fill(null);
      const all = [...Array(INTERVALS).fill(null), ...kept, ...gap, ...numbers];
      this.series[name] = all.slice(-INTERVALS);
    }
    this.intervalMs = said.intervalMs;
    this.end = begin + said.series.commands.length;
    this.drawn.clear();
  }

  // What it came to lately, on average; null if nothing is known.
  recent(name) {
    const known = (this.series[name] || []).slice(-RECENT).filter((number) => number !== null);
    return known.length ? known.reduce((sum, number) => sum + number, 0) / known.length : null;
  }

  // The last number that there is, of the last minute.
  last(name) {
    return (this.series[name] || []).slice(-FRESH).findLast((number) => number !== null) ?? null;
  }

  // The curve itself, with its highest point in words.
  view(name, title, format) {
    if (!this.drawn.has(name)) {
      // All curves have one scale, from when the server began to count.
      const begin = (this.series.commands || []).findIndex((number) => number !== null);
      const numbers = (this.series[name] || []).slice(Math.max(0, Math.min(begin, INTERVALS - AXIS_MIN)));
      const known = numbers.filter((number) => number !== null);
      const highest = known.length ? format(Math.max(...known)) : "nothing known yet";
      const minutes = Math.round((numbers.length * this.intervalMs) / 60_000);
      const label = `${title}, last ${minutes} minutes; highest: ${highest}`;
      this.drawn.set(name, h("div", { class: "curve", title: label }, spark(numbers, { label })));
    }
    return this.drawn.get(name);
  }
}

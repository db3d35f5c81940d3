// Settings as people read and write them: by section, with their unit, from text and to text.

import { bytes, duration } from "./format.js";
import { pretty } from "./value.js";

// What the server shows in place of a secret.
const MASK = "********";
// How a setting that ends like this reads.
const UNITS = [
  [/_ms$/, (value) => (value < 1_000 ? "" : duration(value))],
  [/((?<!_per)_s|^tiers\..*)$/, (value) => (value < 60 ? "" : duration(1_000 * value))],
  [/_bytes$/, (value) => (value < 1_024 ? "" : bytes(value))],
  [/_mb$/, (value) => (value < 1_024 ? "" : bytes(value * 1_024 * 1_024))],
];

// [{name, settings: [{name, path, key, value, source, isWaiting}]}], in the order of the file.
export function sectionsOf(view) {
  const sections = [{ name: "general", settings: [] }];
  const waiting = new Set(view.needsRestart);
  const add = (section, path, value) => {
    const name = path.join(".");
    section.settings.push({ name, path, key: path.at(-1), value, source: view.sources[name] || "default", isWaiting: waiting.has(name) });
  };
  for (const [name, below] of Object.entries(view.settings)) {
    if (below === null || typeof below !== "object") add(sections[0], [name], below);
    else if (name === "pools") {
      for (const [pool, settings] of Object.entries(below)) {
        const section = { name: `pools.${pool}`, settings: [] };
        for (const [key, value] of Object.entries(settings)) add(section, [name, pool, key], value);
        sections.push(section);
      }
    } else {
      const section = { name, settings: [] };
      for (const [key, value] of Object.entries(below)) add(section, [name, key], value);
      sections.push(section);
    }
  }
  return sections.filter((section) => section.settings.length > 0);
}

export const isMasked = (value) => typeof value === "string" && value.includes(MASK);

// How it reads; empty where there is nothing to read.
export function textOf(value) {
  if (value === null || value === "") return "";
  if (Array.isArray(value)) return value.join(", ");
  return typeof value === "string" ? value : pretty(value);
}

// What a number means, in words: 30 s, 1 GB; empty where it is just a number.
export function meaning(name, value) {
  if (typeof value !== "number") return "";
  return UNITS.find(([pattern]) => pattern.test(name))?.[1](value) ?? "";
}

// What was typed, as a value of the kind that the setting has now. Whether it may be that, the server says.
export function valueOf(text, before) {
  const typed = text.trim();
  if (Array.isArray(before)) return typed.split(/[,\n]/).map((item) => item.trim()).filter(Boolean);
  if (typeof before === "boolean") return typed === "true";
  if (typeof before === "number" || before === null) return /^-?\d+(\.\d+)?$/.test(typed) ? Number(typed) : typed;
  if (typeof before === "object") return JSON.parse(typed || "{}");
  return typed;
}

// {pools: {default: {warm: 3}}} of its path; null takes it out of the file.
export const patchOf = (path, value) => path.reduceRight((below, key) => ({ [key]: below }), value);

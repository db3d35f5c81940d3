// Values that pages and tasks produced, as people read them: pictures as pictures, the rest as text, long ones folded.

import { copyButton } from "./copy.js";
import { h } from "./dom.js";
import { bytes } from "./format.js";

// From here on it is folded.
const FOLD_CHARS = 1_500;
// No more than this is put into the page; all of it can be copied or saved.
const SHOWN_CHARS = 100_000;
// What base64 begins with of the pictures that a screenshot may be, and of a printed page.
const PICTURES = { iVBORw0KGgo: "png", "/9j/": "jpeg", UklGR: "webp" };
const PRINTED = "JVBERi0";
// Of an object, worked out once: a page is drawn every second.
const texts = new WeakMap();

// kind: the action that it came from; name: what a file of it is called; isPart: one of several, of which short ones
// have no buttons.
export function valueView(value, { kind = "", name = "result", isPart = false } = {}) {
  if (value === null || value === undefined) return h("p", { class: "quiet" }, "nothing");
  if (kind === "screenshot" && typeof value === "string") {
    const format = Object.entries(PICTURES).find(([begin]) => value.startsWith(begin))?.[1];
    if (format) return picture(value, format, name);
  }
  if (kind === "pdf" && typeof value === "string" && value.startsWith(PRINTED)) {
    return h("div", { class: "bar" }, h("span", null, `A PDF of ${bytes(sizeOf(value))}`), saveButton(() => blobOf(value, "application/pdf"), `${name}.pdf`));
  }
  return text(typeof value === "string" ? value : pretty(value), typeof value === "string" ? "txt" : "json", name, isPart);
}

export function pretty(value) {
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  let said = texts.get(value);
  if (said === undefined) {
    said = JSON.stringify(value, null, 2);
    texts.set(value, said);
  }
  return said;
}

function picture(base64, format, name) {
  return h("figure", { class: "picture" },
    h("img", { src: `data:image/${format};base64,${base64}`, alt: "What the page looked like" }),
    h("figcaption", { class: "bar quiet small" }, `${format.toUpperCase()}, ${bytes(sizeOf(base64))}`, saveButton(() => blobOf(base64, `image/${format}`), `${name}.${format}`)));
}

function text(said, ending, name, isPart) {
  if (said === "") return h("p", { class: "quiet" }, "an empty text");
  if (isPart && said.length <= FOLD_CHARS) return h("pre", null, said);
  const shown = [
    h("pre", null, said.slice(0, SHOWN_CHARS)),
    h("div", { class: "bar" },
      said.length > SHOWN_CHARS && h("span", { class: "quiet small" }, `The first ${bytes(SHOWN_CHARS)} of ${bytes(said.length)}.`),
      copyButton(said, "the result"), saveButton(() => new Blob([said], { type: "text/plain" }), `${name}.${ending}`)),
  ];
  if (said.length <= FOLD_CHARS) return h("div", { class: "value" }, shown);
  return h("details", { class: "value" }, h("summary", null, `${bytes(said.length)} of ${ending === "json" ? "JSON" : "text"}: `, h("code", null, said.slice(0, 60)), "…"), shown);
}

const saveButton = (blob, name) => h("button", { class: "plain small", onclick: () => save(blob(), name) }, "Save");

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

const sizeOf = (base64) => Math.floor((base64.length * 3) / 4);

function blobOf(base64, type) {
  return new Blob([Uint8Array.from(atob(base64), (char) => char.charCodeAt(0))], { type });
}

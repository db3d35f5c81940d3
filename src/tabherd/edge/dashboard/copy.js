// Copying to the clipboard, also where browsers do not allow it: on a page that came neither over TLS nor from this host.

import { show, toast } from "./dialog.js";
import { h } from "./dom.js";

export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    toast(`Copied ${what}.`);
  } catch {
    // Then a person does it by hand, from a field in which all is chosen.
    show(`Copy ${what}`, h("textarea", { class: "mono", rows: 3, readonly: true, "aria-label": what, value: text, ref: (field) => queueMicrotask(() => field.select()) }));
  }
}

export const copyButton = (text, what) =>
  h("button", { class: "plain small", onclick: () => copy(text, what), "aria-label": `Copy ${what}` }, "Copy");

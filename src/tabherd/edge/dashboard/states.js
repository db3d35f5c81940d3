// What a page shows when there is nothing to show: not yet, not any more, or not to you.

import { h } from "./dom.js";

export const empty = (title, hint, ...more) =>
  h("div", { class: "state", "data-state": "empty" }, h("h2", null, title), hint && h("p", null, hint), ...more);

export const loading = (what) =>
  h("div", { class: "state", "data-state": "loading", "aria-busy": "true" },
    h("div", { class: "spinner", role: "img", "aria-label": "Loading" }), h("p", null, `Reading ${what}…`));

export const failed = (error, retry) =>
  h("div", { class: "state", "data-state": "error", role: "alert" },
    h("h2", null, error.message), error.action && h("p", null, error.action),
    error.code && h("p", { class: "quiet" }, h("code", null, error.code)),
    retry && h("button", { onclick: retry }, "Try again"));

export const forbidden = (error, what) =>
  h("div", { class: "state", "data-state": "forbidden" },
    h("h2", null, `${what} is not for this token`), h("p", null, error.message),
    h("p", { class: "quiet" }, "Log out and in again with a token that may see it; the admin's may see all."));

// The view of a resource: `draw` with its data when there is some, else what is the matter with it.
export function shown(resource, what, draw) {
  if (resource.state === "forbidden") return forbidden(resource.error, what);
  if (resource.data !== null) {
    return [
      resource.unreachable.length > 0 &&
        h("p", { class: "notice bad", key: "unreachable", role: "alert" },
          `No answer from ${resource.unreachable.join(", ")}: what is there is missing here.`),
      draw(resource.data),
    ];
  }
  return resource.state === "failed" ? failed(resource.error, () => resource.look()) : loading(what.toLowerCase());
}

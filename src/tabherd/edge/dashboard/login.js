// Logging in: a token once, then a cookie.

import { logIn } from "./api.js";
import { h } from "./dom.js";

// `entered` is called with who it is; `reason`: why one is asked, if one was in already.
export function loginView({ entered, reason, update }) {
  const form = { token: "", problem: "", isBusy: false };

  async function submit(event) {
    event?.preventDefault();
    form.isBusy = true;
    form.problem = "";
    update();
    try {
      entered(await logIn(form.token.trim()));
    } catch (error) {
      form.problem = error.message;
      form.isBusy = false;
      update();
    }
  }

  return () =>
    h("main", { class: "login", "data-state": "login" },
      h("form", { onsubmit: submit },
        h("h1", { class: "logo" }, "tabherd"),
        h("p", { class: "quiet" }, "One door to your browsers for a crowd of agents."),
        reason && h("p", { class: "notice bad", role: "alert" }, reason),
        h("label", { for: "token" }, "Token"),
        h("input", {
          id: "token", type: "password", autocomplete: "current-password", spellcheck: "false", autofocus: true,
          required: true, value: form.token, placeholder: "th_…",
          "aria-describedby": "token-hint", oninput: (event) => { form.token = event.target.value; },
        }),
        form.problem && h("p", { class: "notice bad", role: "alert" }, form.problem),
        h("button", { type: "submit", disabled: form.isBusy }, form.isBusy ? "Logging in…" : "Log in"),
        h("p", { id: "token-hint", class: "quiet small" },
          "On the server's machine, ", h("code", null, "tabherd dashboard"), " opens this page logged in. ",
          h("code", null, "tabherd token new --agent NAME"), " makes a token that sees one agent's things; the admin's is in the state directory.")));
}

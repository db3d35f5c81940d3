// Questions before something is done, and what came of it.

import { h, render } from "./dom.js";

const TOAST_MS = 6_000;
const TOASTS_MAX = 4;
let toasts = [];

// Ask before `verb` is done; resolves to whether the person said yes. The safe answer has the focus. With `field`, the
// name of something that must be typed, it resolves to that.
export function confirm({ title, body, verb, isDangerous = true, field = "" }) {
  return new Promise((resolve) => {
    const dialog = document.createElement("dialog");
    dialog.ariaLabel = title;
    const close = (answer) => {
      dialog.close();
      dialog.remove();
      resolve(answer);
    };
    dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      close(false);
    });
    const agreed = () => {
      const typed = dialog.querySelector("input")?.value.trim();
      if (typed === "") dialog.querySelector("input").focus();
      else close(field ? typed : true);
    };
    const entered = (event) => {
      if (event.key !== "Enter") return;
      // Else it would press the button that has the focus once this is closed.
      event.preventDefault();
      agreed();
    };
    render(dialog,
      h("h2", null, title),
      h("p", null, body),
      field && h("label", { class: "field" }, field,
        h("input", { autofocus: true, autocomplete: "off", spellcheck: "false", maxlength: 100, onkeydown: entered })),
      h("div", { class: "buttons" },
        h("button", { class: "plain", autofocus: !field, onclick: () => close(false) }, "Keep as it is"),
        h("button", { class: isDangerous ? "danger" : "", "data-confirm": "", onclick: agreed }, verb)));
    document.body.append(dialog);
    dialog.showModal();
  });
}

// A dialog with anything in it; returns what closes it.
export function show(title, content) {
  const dialog = document.createElement("dialog");
  dialog.ariaLabel = title;
  const close = () => {
    dialog.close();
    dialog.remove();
  };
  dialog.addEventListener("close", () => dialog.remove());
  render(dialog, h("h2", null, title), content,
    h("div", { class: "buttons" }, h("button", { class: "plain", autofocus: true, onclick: close }, "Close")));
  document.body.append(dialog);
  dialog.showModal();
  return close;
}

export function toast(message, mood = "good", hint = "") {
  const one = { message, hint, mood, key: `${performance.now()}` };
  toasts = [...toasts, one].slice(-TOASTS_MAX);
  draw();
  setTimeout(() => {
    toasts = toasts.filter((other) => other !== one);
    draw();
  }, TOAST_MS);
}

function draw() {
  render(document.getElementById("toasts"),
    toasts.map((one) =>
      h("div", { key: one.key, class: `toast ${one.mood}` }, h("span", null, one.message), one.hint && h("small", null, one.hint))));
}

// Ask, do it (with what was typed, if that was asked for), and say how it went. True if it was done.
export async function act(question, work, done) {
  const answer = question && (await confirm(question));
  if (question && !answer) return false;
  try {
    await work(answer);
    toast(done);
    return true;
  } catch (error) {
    toast(error.message, "bad", error.action);
    return false;
  }
}

// One tab as it is now, and a person's hands on it: watching disturbs nobody, taking over pauses the agents.

import { confirm, toast } from "./dialog.js";
import { h } from "./dom.js";
import { ago, badge } from "./format.js";
import { handsOn } from "./live-input.js";
import { LiveSocket } from "./live-socket.js";
import { forbidden, loading } from "./states.js";

export const title = "Live view";

// The same refusal is not said again and again while the mouse moves.
const SAY_AGAIN_MS = 3_000;
const RESIZE_MS = 300;

export function page({ params, update }) {
  const tabId = params.tabId;
  let canvas = null;
  let keys = null;
  let takeOff = null;
  // Of the frame on the canvas; null before the first.
  let header = null;
  // A frame that came before there was a canvas: [bitmap, header].
  let early = null;
  let wasDriving = false;
  // What is typed into the address bar; null: it shows where the page is.
  let address = null;
  let hasFocus = false;
  const said = new Map();

  const live = new LiveSocket(tabId, { wanted, draw, told, refused });
  const resizing = new ResizeObserver(() => {
    clearTimeout(resizing.timer);
    resizing.timer = setTimeout(() => live.resize(), RESIZE_MS);
  });

  const isDriving = () => live.phase === "live" && Boolean(live.state?.driver?.isYou);

  // --- The picture ----------------------------------------------------------------------------------------------

  function wanted() {
    const box = canvas?.parentElement?.getBoundingClientRect();
    const scale = window.devicePixelRatio || 1;
    return { width: (box?.width || innerWidth) * scale, height: (box?.height || innerHeight) * scale };
  }

  function draw(bitmap, its) {
    if (!canvas) {
      early?.[0].close();
      early = [bitmap, its];
      return;
    }
    if (canvas.width !== bitmap.width || canvas.height !== bitmap.height) {
      canvas.width = bitmap.width;
      canvas.height = bitmap.height;
    }
    canvas.getContext("2d", { alpha: false }).drawImage(bitmap, 0, 0);
    bitmap.close();
    const isOther = !header || header.width !== its.width || header.height !== its.height;
    header = its;
    canvas.dataset.seq = its.seq;
    if (isOther) {
      canvas.style.setProperty("--page-width", its.width);
      canvas.style.setProperty("--page-height", its.height);
      update();
    }
  }

  function attach() {
    if (!canvas || !keys || takeOff) return;
    takeOff = handsOn(canvas, keys, { page: () => header, isDriving, say: (type, fields) => live.say(type, fields), leave });
    resizing.observe(canvas.parentElement);
    if (early) draw(...early);
    early = null;
  }

  // --- Words ----------------------------------------------------------------------------------------------------

  function told() {
    const isOurs = isDriving();
    if (isOurs && !wasDriving) keys?.focus({ preventScroll: true });
    else if (!isOurs && hasFocus) leave();
    wasDriving = isOurs;
    update();
  }

  function refused(error) {
    const now = performance.now();
    if (now - (said.get(error.code) ?? -SAY_AGAIN_MS) < SAY_AGAIN_MS) return;
    said.set(error.code, now);
    toast(error.message, "bad", error.action);
  }

  // --- Taking over ------------------------------------------------------------------------------------------------

  async function take() {
    const { driver } = live.state;
    const question = {
      title: "Take the tab from somebody else?", verb: "Take over",
      body: `${driver?.name} is using it right now, and would only be watching.`,
    };
    if (driver && !driver.isYou && !(await confirm(question))) return;
    live.say("take", { force: Boolean(driver) });
  }

  function give() {
    live.say("give");
    leave();
  }

  // Back from the page to the buttons.
  function leave() {
    keys?.blur();
    document.getElementById("live-turn")?.focus();
  }

  function turn() {
    if (live.phase !== "live" || !live.state.mayDrive) return;
    if (isDriving()) give();
    else take();
  }

  async function visit(event) {
    event.preventDefault();
    const typed = (address ?? "").trim();
    if (!typed) return;
    const isLocal = /^(localhost|127\.|\[::1\])/.test(typed);
    live.say("navigate", { url: /^[a-z][a-z0-9+.-]*:/i.test(typed) && !isLocal ? typed : `${isLocal ? "http" : "https"}://${typed}` });
    address = null;
    keys?.focus({ preventScroll: true });
    update();
  }

  // --- Views ------------------------------------------------------------------------------------------------------

  function bar() {
    const isOff = !isDriving();
    const url = live.state?.tab.url ?? "";
    const step = (label, sign, type, fields) =>
      h("button", { class: "plain", type: "button", disabled: isOff, "aria-label": label, title: label, onclick: () => live.say(type, fields) }, sign);
    return h("form", { class: "bar live-bar", key: "bar", onsubmit: visit },
      step("Back", "←", "history", { by: -1 }),
      step("Forward", "→", "history", { by: 1 }),
      step("Reload", "⟳", "reload", {}),
      h("input", {
        type: "text", inputmode: "url", "aria-label": "Address", spellcheck: "false", autocomplete: "off", class: "mono",
        readonly: isOff, value: address ?? url, title: url,
        oninput: (event) => { address = event.target.value; },
        onblur: () => { address = null; update(); },
        onfocus: (event) => !isOff && event.target.select(),
      }));
  }

  function waiting({ tab }) {
    const count = tab.waiters.length;
    return count === 0 ? "no agent waits" : count === 1 ? `1 agent waits (${tab.waiters[0].agentId})` : `${count} agents wait`;
  }

  // [mood, what is the case, what follows from it]
  function standing(state) {
    const { tab, driver } = state;
    const { holder } = tab;
    if (tab.state === "dead") return ["bad", "The page died, and its session does not want it opened again.", ""];
    if (tab.state !== "ready" && tab.state !== "paused") return ["busy", "The page is being replaced.", waiting(state)];
    if (tab.state === "paused" || holder?.reason === "handoff") {
      if (holder?.commandId) return ["busy", `Handed over as soon as the command that runs (${holder.kind}) has ended.`, waiting(state)];
      if (driver?.isYou) return ["good", "You drive this tab.", waiting(state)];
      if (driver) return ["busy", `${driver.name} drives this tab.`, waiting(state)];
      return ["busy", `Handed over by ${holder?.controllerId || "somebody"}; nobody drives it.`, waiting(state)];
    }
    if (!holder) return ["", "Agents have this tab; nothing runs on it.", waiting(state)];
    const what = holder.reason === "tab_lock" ? "locked" : `busy with ${holder.kind}`;
    return ["", `Agents have this tab; it is ${what} (${holder.controllerId}).`, waiting(state)];
  }

  function banner() {
    const { state } = live;
    const [mood, text, more] = standing(state);
    const isOurs = isDriving();
    const isPaused = state.tab.holder?.reason === "handoff";
    return h("div", { class: `notice live-banner ${mood}`, key: "banner", role: "status", "data-driver": state.driver ? (isOurs ? "you" : "other") : "none" },
      h("span", { class: "live-words" }, h("strong", null, text), " ", h("span", { class: "small" }, more),
        isOurs && h("span", { class: "small live-hint" },
          hasFocus ? ["Keys go to the page. ", h("kbd", null, "Ctrl"), "+", h("kbd", null, "Alt"), "+", h("kbd", null, "Esc"), " leaves it."]
            : "Click into the page to type there.")),
      state.mayDrive
        ? h("span", { class: "buttons" },
          isPaused && !isOurs && h("button", { class: "plain", onclick: () => live.say("give") }, "Give back"),
          // Pressing it must not take the focus from the page: the hint would change, and the button move away under the pointer.
          h("button", { id: "live-turn", onclick: turn, onmousedown: (event) => event.preventDefault(), title: "t", class: isOurs ? "" : "plain" }, isOurs ? "Give back" : "Take over"))
        : h("span", { class: "quiet small" }, "Only its owner or an admin may take it over."));
  }

  const ended = () =>
    h("div", { class: "state", "data-state": "ended", key: "ended" },
      h("h2", null, live.error?.message || "This view has ended."),
      h("p", null, live.error?.action || ""),
      h("p", null, h("a", { href: "#/tabs" }, "All tabs")));

  function stage() {
    const isStale = live.phase !== "live";
    return h("div", { class: `live-stage${isStale ? " stale" : ""}${isDriving() ? " driving" : ""}`, key: "stage", "data-captures-keys": "" },
      h("canvas", {
        key: "canvas", width: "16", height: "9", role: "img", hidden: header === null, "aria-label": `The page ${live.state?.tab.title || live.state?.tab.url || ""}`,
        ref: (node) => { canvas = node; attach(); },
      }),
      h("textarea", {
        key: "keys", class: "live-keys", "aria-label": "Keys typed here go to the page; Control, Alt and Escape leave it", autocapitalize: "off",
        autocomplete: "off", autocorrect: "off", spellcheck: "false", tabindex: isDriving() ? "0" : "-1",
        ref: (node) => { keys = node; attach(); },
        onfocus: () => { hasFocus = true; update(); },
        onblur: () => { hasFocus = false; update(); },
      }),
      header === null && !isStale && loading("the picture"));
  }

  function view() {
    if (live.phase === "forbidden") return forbidden(live.error, "This tab");
    const { state } = live;
    const isOver = live.phase === "ended";
    return [
      h("header", { key: "header" },
        h("h1", { class: "cut" }, state?.tab.title || "Live view"),
        state && badge(state.tab.state),
        state && h("span", { class: "quiet small wide-only" }, state.tab.agentId, " · generation ", state.tab.generation,
          " · ", state.viewers === 1 ? "only you watch" : `${state.viewers} watch`),
        state?.tab.holder && h("span", { class: "quiet small wide-only" }, "held for ", ago(state.tab.holder.since)),
        h("span", { class: "spacer" }),
        h("a", { href: `#/tabs/${encodeURIComponent(tabId)}` }, "Details")),
      isOver && ended(),
      live.phase === "connecting" && loading("the tab"),
      live.phase === "reconnecting" &&
        h("p", { class: "notice busy", key: "lost", role: "status", "data-state": "reconnecting" },
          "The connection to this tab is lost; trying again. The picture is from before."),
      !isOver && live.phase === "live" && banner(),
      !isOver && state && bar(),
      !isOver && (state || header) && stage(),
    ];
  }

  return {
    watch: [],
    view,
    keys: { t: { title: "take the tab over, or give it back", run: turn } },
    close() {
      resizing.disconnect();
      clearTimeout(resizing.timer);
      takeOff?.();
      live.close();
    },
  };
}

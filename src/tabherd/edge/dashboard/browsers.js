// The browsers: how each is, what it costs, what it has; and for admins, restarting and draining one.

import { post } from "./api.js";
import { act } from "./dialog.js";
import { h } from "./dom.js";
import { ago, badge, brief, bytes, count, duration, id } from "./format.js";
import { empty, shown } from "./states.js";
import { ailment } from "./stuck.js";
import { Table } from "./table.js";

export const title = "Browsers";

export function page({ me, store, update }) {
  // Which one is looked at; it stays that one while the list changes, and says so when it is gone.
  let openedId = null;
  const browsers = () => store.of("browsers").data || [];

  const table = new Table({
    label: "Browsers",
    key: (browser) => browser.browserId,
    open: (browser) => {
      openedId = openedId === browser.browserId ? null : browser.browserId;
      update();
    },
    columns: [
      { name: "id", title: "Browser", cell: (one) => brief(one.browserId), sort: (one) => one.browserId, width: "8.5rem", smallWidth: "minmax(0, 1fr)" },
      { name: "state", title: "State", cell: (one) => badge(one.suspect ? "suspect" : one.state), sort: (one) => one.state, width: "6rem", smallWidth: "5rem" },
      { name: "circuit", title: "Circuit", cell: circuit, sort: (one) => one.circuit, width: "4.5rem", isWideOnly: true },
      { name: "pool", title: "Pool", cell: (one) => one.pool, sort: (one) => one.pool, width: "minmax(4rem, .5fr)", isWideOnly: true },
      { name: "sessions", title: "Sessions", cell: (one) => count(one.sessions), sort: (one) => one.sessions, width: "5rem", smallWidth: "4.4rem", isNumber: true },
      { name: "stock", title: "Warm", cell: (one) => count(one.stock), sort: (one) => one.stock, width: "4rem", isNumber: true, isWideOnly: true },
      { name: "memory", title: "Memory", cell: (one) => bytes(one.memoryBytes), sort: (one) => one.memoryBytes ?? -1, width: "5.5rem", isNumber: true, isWideOnly: true },
      { name: "cpu", title: "CPU", cell: (one) => percent(one.cpuPercent), sort: (one) => one.cpuPercent ?? -1, width: "4rem", isNumber: true, isWideOnly: true },
      { name: "age", title: "Runs for", cell: (one) => ago(one.startedAt), sort: (one) => one.startedAt, width: "5.5rem", isNumber: true, isWideOnly: true },
      { name: "failure", title: "Last failure", cell: (one) => h("span", { title: one.lastFailure, class: "quiet" }, one.lastFailure || "–"), width: "minmax(6rem, 2fr)", isWideOnly: true },
    ],
  });

  function view() {
    return [
      h("header", { key: "head" }, h("h1", null, "Browsers"), h("span", { class: "quiet" }, summary(browsers()))),
      shown(store.of("browsers"), "The list of browsers", (all) => [all.length ? list(all) : none(), details(all)]),
    ];
  }

  const list = (all) =>
    h("div", { class: "fit", key: "list", style: { "--height": `${all.length * table.rowHeight}px` } }, table.view(all));

  const none = () =>
    empty("No browser runs", "One is started as soon as somebody asks for a session; a pool can keep some ready:", h("code", null, "browsers_min = 1"));

  // The one that was opened: what does not fit into its row, and what can be done with it.
  function details(all) {
    if (openedId === null) return all.length > 0 && h("p", { class: "quiet small", key: "hint" }, "Choose a browser to see all of it", me.isAdmin && ", to restart it or to drain it", ".");
    const browser = all.find((one) => one.browserId === openedId);
    if (!browser) {
      return h("section", { class: "card", key: "details", "data-details": openedId },
        h("div", { class: "bar" }, h("h2", null, id(openedId)), badge("gone"), h("span", { class: "spacer" }), closeButton()),
        h("p", { class: "quiet" }, "It has ended. What runs in its place is in the list."));
    }
    const wrong = ailment(browser);
    return h("section", { class: "card details", key: "details", "data-details": openedId, "aria-label": `Browser ${openedId}` },
      h("div", { class: "bar" }, h("h2", null, id(openedId)), state(browser), h("span", { class: "spacer" }), me.isAdmin && buttons(browser), closeButton()),
      wrong && h("p", { class: "notice bad", role: "alert" }, `This browser ${wrong}`),
      h("dl", { class: "facts" },
        fact("Pool", browser.pool), fact("Node", id(browser.node)),
        fact("Product", browser.product || "–"), fact("Process", browser.pid ? `${browser.pid}, ${count(browser.processes)} processes in all` : "not ours, or not started yet"),
        fact("Sessions", `${count(browser.sessions)} now, ${count(browser.sessionsServed)} served, ${count(browser.stock)} warm contexts`),
        fact("Cost", browser.memoryBytes === null ? "not measured yet" : `${bytes(browser.memoryBytes)}, ${percent(browser.cpuPercent)} of a core, ${duration(browser.cpuMs)} of processor time`),
        fact("Circuit", circuitWords(browser)), fact("Answers", browser.suspect ? "it missed a probe" : "yes"),
        fact("Started", [ago(browser.startedAt), " ago"]), fact("Last failure", browser.lastFailure || "none")));
  }

  const closeButton = () => h("button", { class: "plain small", onclick: () => { openedId = null; update(); } }, "Close");

  function buttons(browser) {
    return [
      h("button", { class: "plain small", "data-act": "drain", disabled: !mayDrain(browser), onclick: () => drain(browser) }, "Drain…"),
      h("button", { class: "danger small", "data-act": "restart", disabled: !mayRestart(browser), onclick: () => restart(browser) }, "Restart…"),
    ];
  }

  // --- What can be done ---------------------------------------------------------------------------------------

  async function restart(browser) {
    await act({
      title: `Restart ${browser.browserId}?`,
      body: browser.sessions
        ? `It ends now. Its ${browser.sessions === 1 ? "session goes" : `${browser.sessions} sessions go`} on in another browser, with cookies, storage and addresses; what runs in a page at this moment is lost.`
        : "It ends now, and another one is started. No session is in it.",
      verb: "Restart",
    }, () => post(`/browsers/${encodeURIComponent(browser.browserId)}/restart`), `${browser.browserId} is being restarted.`);
    store.refresh("browsers");
  }

  async function drain(browser) {
    await act({
      title: `Drain ${browser.browserId}?`,
      body: `It gets nothing new, its replacement starts now, and it ends with its last session${browser.sessions ? ` (${browser.sessions} now)` : ""}. This cannot be taken back.`,
      verb: "Drain",
    }, () => post(`/browsers/${encodeURIComponent(browser.browserId)}/drain`), `${browser.browserId} is draining.`);
    store.refresh("browsers");
  }

  // On the row that has the selection, or the one that is open.
  const chosen = () => table.selected || browsers().find((one) => one.browserId === openedId);
  const keys = me.isAdmin ? {
    r: { title: "restart the selected browser", run: () => chosen() && mayRestart(chosen()) && restart(chosen()) },
    d: { title: "drain the selected browser", run: () => chosen() && mayDrain(chosen()) && drain(chosen()) },
  } : {};

  return { watch: ["browsers"], view, keys };
}

const fact = (name, value) => [h("dt", null, name), h("dd", null, value)];
const percent = (number) => (number === null ? "–" : `${Math.round(number)} %`);
const state = (browser) => [badge(browser.state), browser.suspect && [" ", badge("suspect")]];
const mayDrain = (browser) => browser.state === "ready";
const mayRestart = (browser) => ["ready", "draining", "broken"].includes(browser.state);

// What a circuit breaker calls closed is what is well: its own words mislead whoever does not know that.
const CIRCUITS = { closed: ["fine", "good"], half_open: ["on trial", "busy"], open: ["open", "bad"] };
const circuit = (browser) => badge(...CIRCUITS[browser.circuit]);

function circuitWords(browser) {
  if (browser.circuit === "open") return "open: it kept dying and is not started for a while; a restart does not wait for that";
  return browser.circuit === "half_open" ? "half open: one start is on trial" : "closed: it is started whenever it is needed";
}

function summary(browsers) {
  const ready = browsers.filter((browser) => browser.state === "ready").length;
  return browsers.length ? `${ready} of ${browsers.length} ready` : "";
}

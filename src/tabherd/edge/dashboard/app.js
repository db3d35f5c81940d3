// The frame around the pages: who is logged in, which page is open, whether what it shows is current.
//
// A page is a module that exports `title` and `page(context)`. That is called when the page is opened, with {params,
// query, me, store, update(), go(path)}, and returns {watch: [names of resources], view(), keys?: {key: handler},
// close?()}; `view` describes the page as it should be now. See dom.js and store.js.

import * as api from "./api.js";
import { show, toast } from "./dialog.js";
import { h, render } from "./dom.js";
import { loginView } from "./login.js";
import { empty, failed, loading } from "./states.js";
import { Store } from "./store.js";

// Path (with {parameters}), module, name in the menu, key after g; those without a name are reached from others.
const PAGES = [
  ["/", "overview.js", "Overview", "o"],
  ["/tabs", "tabs.js", "Tabs", "t"],
  ["/tabs/{tabId}", "tab.js"],
  ["/tabs/{tabId}/live", "live.js"],
  ["/sessions", "sessions.js", "Sessions", "s"],
  ["/tasks", "tasks.js", "Tasks", "k"],
  ["/tasks/{taskId}", "task.js"],
  ["/locks", "locks.js", "Locks", "l"],
  ["/browsers", "browsers.js", "Browsers", "b"],
  ["/nodes", "nodes.js", "Nodes", "n"],
  ["/events", "events.js", "Events", "e"],
  ["/audit", "audit.js", "Audit", "a"],
  ["/config", "config.js", "Config", "c"],
].map(([path, module, name, key]) => ({
  path, module, name, key, pattern: new RegExp(`^${path.replace(/\{(\w+)\}/g, "(?<$1>[^/]+)")}$`),
}));
// What an address that leads nowhere shows.
const NOWHERE = {
  title: "No such page",
  page: () => ({ view: () => empty("There is no such page", `Nothing is at ${location.hash}.`, h("a", { href: "#/" }, "Overview")) }),
};
const THEMES = ["auto", "light", "dark"];
const THEME_KEY = "tabherd.theme";
// Times on the screen grow old by the second.
const TICK_MS = 1_000;

const app = {
  me: null,
  // What asks for a token; null while somebody is logged in.
  login: null,
  store: null,
  route: null,
  // What the open page's module gave; null while it is on its way.
  page: null,
  problem: null,
  isMenuOpen: false,
  theme: localStorage.getItem(THEME_KEY) || "auto",
  // Whether g was pressed just now.
  isGoing: false,
  isDrawing: false,
};

// --- Drawing --------------------------------------------------------------------------------------------------

function update() {
  if (app.isDrawing) return;
  app.isDrawing = true;
  requestAnimationFrame(draw);
}

function draw() {
  app.isDrawing = false;
  const root = document.getElementById("app");
  if (app.login) render(root, app.login());
  else if (app.me) render(root, frame());
}

function frame() {
  return h("div", { class: `frame${app.isMenuOpen ? " menu-open" : ""}`, key: "frame" },
    h("header", null,
      h("button", { class: "plain menu-button", "aria-label": "Menu", "aria-expanded": String(app.isMenuOpen), onclick: () => { app.isMenuOpen = !app.isMenuOpen; update(); } }, "☰"),
      h("a", { class: "logo", href: "#/" }, "tabherd"),
      connection(),
      h("span", { class: "spacer" }),
      h("span", { class: "who", title: app.me.scopes.join(", ") || "no scopes" }, app.me.agentId, app.me.isAdmin && app.me.agentId !== "admin" && " (admin)"),
      h("button", { class: "plain", title: "Colours", "aria-label": `Colours: ${app.theme}`, onclick: nextTheme }, { auto: "◐", light: "☀", dark: "☾" }[app.theme]),
      h("button", { class: "plain wide-only", title: "Keys (?)", "aria-label": "Keys", onclick: help }, "?"),
      app.me.authEnabled && h("button", { class: "plain", onclick: leave }, "Log out")),
    h("nav", { "aria-label": "Pages" },
      PAGES.filter((page) => page.name).map((page) =>
        h("a", {
          href: `#${page.path}`, "aria-current": isUnder(page.path) ? "page" : null,
          onclick: () => { app.isMenuOpen = false; },
        }, page.name)),
      h("a", { class: "minor", href: "docs" }, "HTTP interface")),
    h("main", { id: "page", tabindex: "-1", "data-page": app.route?.page.path || "" },
      app.store.connection === "reconnecting" &&
        h("p", { class: "notice busy reconnecting", role: "status", "data-state": "reconnecting" }, "No connection to the server. What is shown is from before; trying again…"),
      content()));
}

function connection() {
  const { connection: state } = app.store;
  const words = { live: "live", connecting: "connecting", reconnecting: "reconnecting" };
  return h("span", { class: `connection ${state}`, role: "status" }, h("i", { "aria-hidden": "true" }), words[state]);
}

function content() {
  if (app.problem) return failed(app.problem, () => location.reload());
  if (!app.page) return loading("the page");
  return h("div", { class: "page", key: app.route.at }, app.page.view());
}

const isUnder = (path) => app.route && (path === "/" ? app.route.path === "/" : `${app.route.path}/`.startsWith(`${path}/`));

// --- Pages ----------------------------------------------------------------------------------------------------

const go = (path) => { location.hash = `#${path}`; };

// As it was typed where it is no valid encoding: then nothing has that id.
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function read() {
  const [path, query = ""] = (location.hash.slice(1) || "/").split("?");
  for (const page of PAGES) {
    const found = page.pattern.exec(path);
    if (!found) continue;
    const params = Object.fromEntries(Object.entries(found.groups || {}).map(([name, value]) => [name, decoded(value)]));
    return { at: location.hash, path, page, params, query: new URLSearchParams(query) };
  }
  return { at: location.hash, path, page: { path: "nowhere" }, params: {}, query: new URLSearchParams() };
}

async function open() {
  if (!app.me) return;
  const route = read();
  app.page?.close?.();
  Object.assign(app, { route, page: null, problem: null });
  update();
  try {
    const module = route.page.module ? await import(`./${route.page.module}`) : NOWHERE;
    if (app.route !== route) return;
    document.title = `${module.title} · tabherd`;
    app.page = module.page({ params: route.params, query: route.query, me: app.me, store: app.store, update, go });
    app.store.watch(app.page.watch || []);
  } catch (error) {
    if (app.route !== route) return;
    app.problem = { message: "This page cannot be shown.", action: String(error), code: "" };
  }
  update();
}

// --- Coming and going -----------------------------------------------------------------------------------------

function enter(me) {
  app.login = null;
  app.me = me;
  app.store = new Store(update);
  app.store.start();
  open();
}

function ask(reason) {
  app.page?.close?.();
  app.store?.stop();
  Object.assign(app, { me: null, page: null, store: null });
  app.login = loginView({ entered: enter, reason, update });
  document.title = "Log in · tabherd";
  update();
}

async function leave() {
  try {
    await api.logOut();
  } catch (error) {
    toast(error.message, "bad", error.action);
    return;
  }
  ask("");
}

async function begin() {
  // An address that `tabherd dashboard` printed brings a token. It goes no further than this line.
  const brought = /^#token=([\w-]+)$/.exec(location.hash)?.[1];
  if (brought) history.replaceState(null, "", `${location.pathname}#/`);
  for (let pause = 500; ; pause = Math.min(pause * 2, 8_000)) {
    try {
      enter(await api.whoAmI());
      return;
    } catch (error) {
      if (error.status === 401) break;
      render(document.getElementById("app"), h("div", { class: "splash" }, failed(error)));
    }
    await new Promise((resume) => setTimeout(resume, pause));
  }
  // Only who is nobody yet: an address must not turn whoever follows it into somebody else.
  if (brought) {
    try {
      enter(await api.logIn(brought));
      return;
    } catch (error) {
      ask(error.message);
      return;
    }
  }
  ask("");
}

// --- Keys and colours -----------------------------------------------------------------------------------------

const GENERAL_KEYS = [
  ["g, then a letter", "go to a page"],
  ["↑ ↓ Page Home End", "move in a table"],
  ["Enter", "open what is selected"],
  ["/", "filter"],
  ["Esc", "back, or out of a field"],
  ["?", "these keys"],
];

function help() {
  const own = Object.entries(app.page?.keys || {}).map(([key, what]) => [key, what.title]);
  const pages = PAGES.filter((page) => page.key).map((page) => [`g ${page.key}`, page.name]);
  show("Keys", h("dl", { class: "keys" }, [...own, ...GENERAL_KEYS, ...pages].map(([key, what]) => [h("dt", null, h("kbd", null, key)), h("dd", null, what)])));
}

function pressed(event) {
  if (!app.me || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector("dialog[open]")) return;
  const isTyping = event.target.closest?.("input, textarea, select, [data-captures-keys]");
  if (isTyping) {
    if (event.key === "Escape" && event.target.matches("input, textarea")) event.target.blur();
    return;
  }
  const wasGoing = app.isGoing;
  app.isGoing = event.key === "g" && !wasGoing;
  if (wasGoing) {
    const page = PAGES.find((one) => one.key === event.key);
    if (page) go(page.path);
  } else if (event.key === "?") help();
  else if (event.key === "/") document.querySelector("input[type=search]")?.focus();
  else if (event.key === "Escape" && app.route.path !== "/") history.back();
  else if (app.page?.keys?.[event.key]) app.page.keys[event.key].run();
  else return;
  event.preventDefault();
}

function nextTheme() {
  app.theme = THEMES[(THEMES.indexOf(app.theme) + 1) % THEMES.length];
  localStorage.setItem(THEME_KEY, app.theme);
  dress();
  update();
}

const dress = () => { document.documentElement.dataset.theme = app.theme; };

api.logins.addEventListener("over", (event) => app.me && ask(event.detail.message));
window.addEventListener("hashchange", open);
window.addEventListener("keydown", pressed);
setInterval(() => app.me && !document.hidden && update(), TICK_MS);
dress();
begin();

// The settings in force: where each comes from, what waits for a restart; changed in place, where the server allows it.

import { get, patch } from "./api.js";
import { confirm, toast } from "./dialog.js";
import { h } from "./dom.js";
import { Filters } from "./filters.js";
import { badge, count } from "./format.js";
import { Reading } from "./reading.js";
import { isMasked, meaning, patchOf, sectionsOf, textOf, valueOf } from "./settings.js";
import { empty, shown } from "./states.js";

export const title = "Config";

const EVERY_MS = 10_000;
const MOODS = { file: "good", environment: "busy", flag: "busy", kept: "busy" };
const ORIGINS = {
  default: "nobody has set it",
  file: "the configuration file says so",
  environment: "set by an environment variable when the server was started, which wins over the file",
  flag: "set by a flag when the server was started, which wins over the file",
  kept: "in force since before the file stopped saying it",
};

export function page({ query, me, store, update }) {
  const filters = new Filters(query, { text: "", show: "", node: "" }, (name) => {
    if (name === "node" || name === "") {
      edit = null;
      reading.renew();
    }
    update();
  });
  const node = () => filters.values.node || null;
  const reading = new Reading({ ask: () => get("/config", { node: node() }), everyMs: EVERY_MS, store, update });
  const unlisten = store.listen((event) => {
    if (event.type.startsWith("config_") || event.type === "reset") reading.soon();
  });
  // What is being changed: {name, text, problem: ApiError or null, isBusy}.
  let edit = null;
  reading.look();

  // --- What is shown ------------------------------------------------------------------------------------------

  function view() {
    return [
      h("header", { key: "head" }, h("h1", null, "Config"), nodeChoice(), reading.data && h("span", { class: "quiet small where" }, reading.data.file ?? "")),
      reading.state === "missing"
        ? empty("That node is not there", "It has left, or never was.", h("button", { class: "plain", onclick: () => filters.set("node", "") }, "This node"))
        : shown(reading, "The configuration", settings),
    ];
  }

  function nodeChoice() {
    const nodes = store.of("nodes").data || [];
    if (nodes.length < 2 && !node()) return null;
    return filters.choice("node", "Node", [["", "This node"], ...nodes.filter((one) => !one.isSelf).map((one) => [one.nodeId, one.nodeId])]);
  }

  function settings(config) {
    const sections = sectionsOf(config).map((section) => ({ ...section, settings: section.settings.filter(fits) })).filter((section) => section.settings.length > 0);
    return [
      config.refused && h("p", { class: "notice bad", key: "refused", role: "alert" }, `The file as it is now was refused, and nothing of it is in force: ${config.refused}`),
      config.needsRestart.length > 0 && h("p", { class: "notice busy", key: "restart", "data-waiting": "" },
        config.needsRestart.length === 1 ? "One setting waits for a restart: " : `${count(config.needsRestart.length)} settings wait for a restart: `,
        config.needsRestart.map((name, index) => [index > 0 && ", ", h("code", { key: name }, name)])),
      config.file === null && h("p", { class: "notice", key: "fileless" }, "This server was started without a configuration file: its settings can be looked at, not changed."),
      h("div", { class: "bar", key: "filters" },
        filters.text("text", "Find a setting"),
        filters.choice("show", "Which", [["", "All settings"], ["set", "Set by somebody"], ["waiting", "Waiting for a restart"]]),
        filters.clearing()),
      sections.length === 0
        ? empty("No setting fits", "Names are those of the configuration file.", h("button", { class: "plain", onclick: () => filters.clear() }, "Clear filters"))
        : h("div", { class: "settings", key: "settings" }, sections.map((section) =>
          h("section", { class: "card", key: section.name, "data-section": section.name },
            h("h2", null, section.name === "general" ? "General" : `[${section.name}]`),
            section.settings.map((setting) => row(setting, config))))),
    ];
  }

  function fits(setting) {
    const { text, show } = filters.values;
    if (edit?.name === setting.name) return true;
    if (show === "set" && setting.source === "default") return false;
    if (show === "waiting" && !setting.isWaiting) return false;
    return `${setting.name} ${textOf(setting.value)} ${setting.source}`.toLowerCase().includes(text.trim().toLowerCase());
  }

  function row(setting, config) {
    const isEdited = edit?.name === setting.name;
    const isFixed = setting.source === "environment" || setting.source === "flag";
    return h("div", { class: `setting${isEdited ? " edited" : ""}`, key: setting.name, "data-setting": setting.name },
      h("span", { class: "name" }, setting.key),
      isEdited ? form(setting) : h("span", { class: "value" }, shownValue(setting)),
      h("span", { class: "origin" }, h("span", { title: ORIGINS[setting.source] }, badge(setting.source, MOODS[setting.source])), setting.isWaiting && h("span", { title: "The file says otherwise; that is in force after a restart" }, badge("waits for a restart", "busy"))),
      h("span", { class: "do" }, !isEdited && config.file !== null && (isFixed
        ? h("span", { class: "quiet small", title: ORIGINS[setting.source] }, "fixed")
        : h("button", { class: "plain small", "aria-label": `Change ${setting.name}`, onclick: () => begin(setting) }, "Change"))));
  }

  function shownValue(setting) {
    const text = textOf(setting.value);
    const words = meaning(setting.name, setting.value);
    if (text === "" || text === "{}") return h("span", { class: "quiet" }, setting.value === null ? "not set" : "empty");
    return [h("code", null, text), isMasked(setting.value) && h("span", { class: "quiet" }, " (kept hidden)"), words && h("span", { class: "quiet" }, ` ${words}`)];
  }

  // --- Changing one -------------------------------------------------------------------------------------------

  function begin(setting) {
    edit = { name: setting.name, text: isMasked(setting.value) ? "" : textOf(setting.value), problem: null, isBusy: false };
    update();
  }

  function end() {
    edit = null;
    update();
  }

  function form(setting) {
    const props = {
      "aria-label": setting.name, "aria-invalid": String(edit.problem !== null), value: edit.text, disabled: edit.isBusy,
      spellcheck: "false", autocomplete: "off",
      oninput: (event) => { edit.text = event.target.value; update(); },
      onkeydown: (event) => {
        if (event.key !== "Escape") return;
        event.preventDefault();
        end();
      },
      ref: (field) => queueMicrotask(() => field.focus()),
    };
    const isBoolean = typeof setting.value === "boolean";
    const isLong = setting.value !== null && typeof setting.value === "object";
    return h("form", { class: "value", onsubmit: (event) => { event.preventDefault(); save(setting); } },
      isBoolean ? h("select", props, ["true", "false"].map((word) => h("option", { key: word, value: word }, word)))
        : isLong ? h("textarea", { ...props, rows: 3 })
          : h("input", { ...props, type: isMasked(setting.value) ? "password" : "text", autocomplete: isMasked(setting.value) ? "new-password" : "off" }),
      h("div", { class: "buttons" },
        h("button", { type: "submit", class: "small", disabled: edit.isBusy }, edit.isBusy ? "Saving…" : "Save"),
        h("button", { type: "button", class: "plain small", onclick: end }, "Leave as it is"),
        setting.source === "file" && h("button", { type: "button", class: "plain small", disabled: edit.isBusy, onclick: () => save(setting, true) }, "Take out of the file"),
        h("span", { class: "quiet small" }, Array.isArray(setting.value) ? "separated by commas" : isLong ? "JSON" : meaning(setting.name, valueOf(edit.text, setting.value)))),
      edit.problem && h("p", { class: "bad-text problem", role: "alert" }, edit.problem.message, " ", h("span", { class: "quiet" }, edit.problem.action)));
  }

  async function save(setting, isRemoval = false) {
    let value = null;
    if (!isRemoval) {
      try {
        value = valueOf(edit.text, setting.value);
      } catch (error) {
        edit.problem = { message: `That is no JSON: ${error.message}.`, action: "" };
        update();
        return;
      }
    }
    if (!(await confirm(question(setting, value, isRemoval)))) return;
    // Whoever asks about another node meanwhile changes that one, or none.
    const asked = edit;
    Object.assign(asked, { problem: null, isBusy: true });
    update();
    try {
      const changes = await patch("/config", patchOf(setting.path, value), { node: node() });
      if (edit === asked) edit = null;
      tell(setting, changes);
    } catch (error) {
      Object.assign(asked, { problem: error, isBusy: false });
    }
    await reading.look();
    update();
  }

  function question(setting, value, isRemoval) {
    const place = `${reading.data.file}${node() ? ` on ${node()}` : ""}`;
    if (isRemoval) return { title: `Take ${setting.name} out of the file?`, body: `The server goes on as if ${place} did not name it.`, verb: "Take it out", isDangerous: false };
    const words = (said) => textOf(said) || (said === null ? "not set" : "empty");
    const body = isMasked(setting.value) || /secret/.test(setting.name)
      ? `The new value is written to ${place}. It is not shown again.`
      : `From ${words(setting.value)} to ${words(value)}, in ${place}. Who waits or works now goes on by the new value where that is possible.`;
    return { title: `Change ${setting.name}?`, body, verb: "Change it", isDangerous: false };
  }

  function tell({ name }, changes) {
    if (changes.changed.includes(name)) toast(`${name} is in force.`);
    else if (changes.needsRestart.includes(name)) toast(`${name} is in the file.`, "good", "It is in force after the server was started again.");
    else toast(`${name} is what it was.`, "good", "The file says the same now, or zero, which means: as it is.");
  }

  return {
    watch: me.isAdmin ? ["nodes"] : [],
    view,
    close() {
      unlisten();
      reading.stop();
    },
  };
}

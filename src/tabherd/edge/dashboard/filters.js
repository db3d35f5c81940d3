// The filters of a page, kept in its address: a view can be linked, and is the same after a reload.

import { h } from "./dom.js";

export class Filters {
  // names: {name: what it is when the address does not say}; `changed` is called when one of them has another value.
  constructor(query, names, changed) {
    this.defaults = names;
    this.changed = changed;
    this.values = Object.fromEntries(Object.entries(names).map(([name, value]) => [name, query.get(name) ?? value]));
  }

  get isSet() {
    return Object.entries(this.defaults).some(([name, value]) => this.values[name] !== value);
  }

  set(name, value) {
    if (this.values[name] === value) return;
    this.values[name] = value;
    this.write();
    this.changed(name);
  }

  clear() {
    this.values = { ...this.defaults };
    this.write();
    this.changed("");
  }

  // Replaced, not gone to: what is typed must not open the page anew, nor fill the way back.
  write() {
    const said = new URLSearchParams(Object.entries(this.values).filter(([name, value]) => value !== this.defaults[name]));
    const [path] = location.hash.split("?");
    history.replaceState(null, "", `${location.pathname}${location.search}${path}${said.size ? `?${said}` : ""}`);
  }

  // --- Controls -----------------------------------------------------------------------------------------------

  // Takes effect with each letter.
  text(name, label) {
    return h("input", {
      type: "search", key: name, name, placeholder: label, "aria-label": label, value: this.values[name], spellcheck: "false", autocomplete: "off",
      maxlength: 200, oninput: (event) => this.set(name, event.target.value),
    });
  }

  // Takes effect when it is left or Enter is pressed: for what is asked of the server.
  word(name, label) {
    return h("input", {
      type: "search", key: name, name, placeholder: label, "aria-label": label, value: this.values[name], spellcheck: "false", autocomplete: "off",
      maxlength: 200, onchange: (event) => this.set(name, event.target.value.trim()),
    });
  }

  // options: [[value, words]]; a value that is none of them is shown as it is.
  choice(name, label, options) {
    const chosen = this.values[name];
    const all = options.some(([value]) => value === chosen) ? options : [...options, [chosen, chosen]];
    return h("select", { key: name, name, "aria-label": label, value: chosen, onchange: (event) => this.set(name, event.target.value) },
      all.map(([value, words]) => h("option", { key: value, value }, words)));
  }

  clearing() {
    return this.isSet && h("button", { class: "plain small", key: "clear", onclick: () => this.clear() }, "Clear filters");
  }
}

// What an element is to a person: its ARIA role, its accessible name and its states.
//
// A subset of the ARIA and HTML-AAM rules that covers what pages really use. Nothing here changes the page. Elements
// are read through functions taken from the prototypes, because a form whose field is called "getAttribute" hides its
// own method.
//
// Whoever reads many elements does so inside `inOnePass`: until it returns, no element's style or text is asked for
// twice.

const attributeOf = Function.prototype.call.bind(Element.prototype.getAttribute);
const hasAttribute = Function.prototype.call.bind(Element.prototype.hasAttribute);
const matches = Function.prototype.call.bind(Element.prototype.matches);
const closest = Function.prototype.call.bind(Element.prototype.closest);
const rootOf = Function.prototype.call.bind(Node.prototype.getRootNode);
const parentNodeOf = Function.prototype.call.bind(Object.getOwnPropertyDescriptor(Node.prototype, "parentNode").get);
const childNodesOf = Function.prototype.call.bind(Object.getOwnPropertyDescriptor(Node.prototype, "childNodes").get);
const firstNodeOf = Function.prototype.call.bind(Object.getOwnPropertyDescriptor(Node.prototype, "firstChild").get);
const nextNodeOf = Function.prototype.call.bind(Object.getOwnPropertyDescriptor(Node.prototype, "nextSibling").get);
const textContentOf = Function.prototype.call.bind(Object.getOwnPropertyDescriptor(Node.prototype, "textContent").get);
const tagOf = Function.prototype.call.bind(Object.getOwnPropertyDescriptor(Element.prototype, "localName").get);

// What a name or a line of text is cut at.
const TEXT_MAX = 200;

const ROLES = {
  article: "article", aside: "complementary", audio: "audio", blockquote: "blockquote", button: "button",
  caption: "caption", code: "code", datalist: "listbox", dd: "definition", details: "group", dialog: "dialog",
  dt: "term", embed: "embed", fieldset: "group", figure: "figure", frame: "iframe", h1: "heading", h2: "heading",
  h3: "heading", h4: "heading", h5: "heading", h6: "heading", hr: "separator", iframe: "iframe", li: "listitem",
  main: "main", math: "math", menu: "list", meter: "meter", nav: "navigation", ol: "list", optgroup: "group",
  option: "option", output: "status", p: "paragraph", progress: "progressbar", search: "search", summary: "button",
  svg: "img", table: "table", tbody: "rowgroup", td: "cell", textarea: "textbox", tfoot: "rowgroup",
  thead: "rowgroup", time: "time", tr: "row", ul: "list", video: "video",
};
const INPUT_ROLES = {
  button: "button", checkbox: "checkbox", file: "button", hidden: null, image: "button", number: "spinbutton",
  radio: "radio", range: "slider", reset: "button", search: "searchbox", submit: "button",
};
// Roles whose name is what stands inside them.
const NAMED_BY_CONTENT = new Set([
  "button", "caption", "cell", "checkbox", "columnheader", "gridcell", "heading", "legend", "link", "menuitem",
  "menuitemcheckbox", "menuitemradio", "option", "radio", "rowheader", "switch", "tab", "tooltip", "treeitem",
]);
// Landmarks only where they are not part of something smaller.
const SECTIONS = new Set(["article", "aside", "main", "nav", "section"]);
// Roles that an author may give. One that is not among them is passed over for the next, as browsers do.
const GIVEN_ROLES = new Set([
  ...Object.values(ROLES), ...Object.values(INPUT_ROLES), ...NAMED_BY_CONTENT,
  "alert", "alertdialog", "application", "banner", "combobox", "contentinfo", "directory", "document", "feed", "form",
  "generic", "grid", "log", "marquee", "menu", "menubar", "none", "note", "presentation", "radiogroup", "region",
  "scrollbar", "tablist", "tabpanel", "textbox", "timer", "toolbar", "tree", "treegrid",
]);
// Parts of a table or a list that is there for its looks only are no parts of one.
const PARTS = new Set(["li", "tbody", "td", "tfoot", "th", "thead", "tr"]);
const WHOLES = "table, ul, ol, menu";
// What is in the document but is no text of it.
const UNREAD_TAGS = new Set(["noscript", "script", "style", "template"]);
// How deep text is looked for inside an element.
const NESTING_MAX = 200;

// What has been read in this pass, by element; null outside of one.
let pass = null;

function inOnePass(work) {
  if (pass !== null) return work();
  pass = {styles: new Map(), texts: new Map(), labels: new Map(), words: new Map(), rows: new Map()};
  try {
    return work();
  } finally {
    pass = null;
  }
}

function styleOf(element) {
  let style = pass?.styles.get(element);
  if (style === undefined) {
    const {display, visibility, cursor} = getComputedStyle(element);
    style = {display, visibility, cursor};
    pass?.styles.set(element, style);
  }
  return style;
}

const squeeze = (text) => text.replace(/\s+/g, " ").trim();
const shorten = (text, most = TEXT_MAX) => text.length > most ? text.slice(0, most - 1) + "…" : text;

function parentOf(element) {
  // The parent as it is drawn: through slots and shadow roots.
  const slot = slotOf(element);
  if (slot !== null) return slot;
  const parent = parentNodeOf(element);
  if (parent instanceof ShadowRoot) return parent.host;
  return parent instanceof Element ? parent : null;
}

function isInside(element, ancestor) {
  for (let each = element; each !== null; each = parentOf(each)) if (each === ancestor) return true;
  return false;
}

function roleOf(element) {
  const given = attributeOf(element, "role");
  if (given) {
    const role = squeeze(given).toLowerCase().split(" ").find((each) => GIVEN_ROLES.has(each));
    // What can be focused is not there for its looks only.
    const isLooks = role === "none" || role === "presentation";
    if (isLooks ? !hasAttribute(element, "tabindex") : role === "generic") return null;
    if (role && !isLooks) return role;
  }
  const tag = tagOf(element);
  if (PARTS.has(tag)) {
    const whole = closest(element, WHOLES);
    const kind = whole && attributeOf(whole, "role");
    if (kind === "none" || kind === "presentation") return null;
    if (tag === "td" && (kind === "grid" || kind === "treegrid")) return "gridcell";
  }
  switch (tag) {
    case "a": case "area": return hasAttribute(element, "href") ? "link" : null;
    case "input": {
      const type = element.type;
      if (type in INPUT_ROLES) return INPUT_ROLES[type];
      return hasAttribute(element, "list") ? "combobox" : "textbox";
    }
    case "select": return element.multiple || element.size > 1 ? "listbox" : "combobox";
    case "img": return attributeOf(element, "alt") === "" ? null : "img";
    case "th": return attributeOf(element, "scope") === "row" ? "rowheader" : "columnheader";
    case "section": return isLabelled(element) ? "region" : null;
    case "svg": return isLabelled(element) || childText(element, "title") ? "img" : null;
    case "form": return isLabelled(element) ? "form" : null;
    case "header": case "footer":
      for (let each = parentOf(element); each !== null; each = parentOf(each)) {
        if (SECTIONS.has(tagOf(each))) return null;
      }
      return tag === "header" ? "banner" : "contentinfo";
  }
  if (Object.hasOwn(ROLES, tag)) return ROLES[tag];
  return isEditingHost(element) ? "textbox" : null;
}

function isLabelled(element) {
  return ["aria-label", "aria-labelledby", "title"].some((name) => attributeOf(element, name));
}

function isEditingHost(element) {
  const value = attributeOf(element, "contenteditable");
  return value !== null && value.toLowerCase() !== "false";
}

function nameOf(element, role = roleOf(element)) {
  const labelledBy = attributeOf(element, "aria-labelledby");
  if (labelledBy) {
    const root = rootOf(element);
    const labels = labelledBy.split(/\s+/).filter(Boolean).map((id) => queryAll(root, "#" + CSS.escape(id))[0]);
    const name = squeeze(labels.filter(Boolean).map((label) => labelTextOf(label)).join(" "));
    if (name) return shorten(name);
  }
  const own = squeeze(attributeOf(element, "aria-label") || "") || nativeNameOf(element);
  if (own) return shorten(own);
  if (NAMED_BY_CONTENT.has(role)) {
    // The branches of a tree are not part of the name of what they hang on.
    const branches = role === "treeitem" ? queryAll(element, "[role=group], ul")[0] ?? null : null;
    const content = squeeze(contentOf(element, branches, 0));
    if (content) return shorten(content);
  }
  return shorten(squeeze(attributeOf(element, "title") || attributeOf(element, "placeholder") || ""));
}

function labelTextOf(label) {
  const given = squeeze(attributeOf(label, "aria-label") || attributeOf(label, "alt") || "");
  return given || contentOf(label, null, 0);
}

function nativeNameOf(element) {
  switch (tagOf(element)) {
    case "input":
      if (element.type === "submit") return squeeze(element.value) || labelOf(element) || "Submit";
      if (element.type === "reset") return squeeze(element.value) || labelOf(element) || "Reset";
      if (element.type === "button") return squeeze(element.value) || labelOf(element);
      if (element.type === "image") return squeeze(attributeOf(element, "alt") || "") || labelOf(element) || "Submit";
      return labelOf(element);
    case "textarea": case "select": case "meter": case "progress": case "output": return labelOf(element);
    case "button": return "";
    case "img": case "area": return squeeze(attributeOf(element, "alt") || "");
    case "fieldset": return childText(element, "legend");
    case "table": return childText(element, "caption");
    case "figure": return childText(element, "figcaption");
    case "svg": return childText(element, "title");
    case "option": case "optgroup": return squeeze(attributeOf(element, "label") || "");
  }
  return "";
}

function labelOf(element) {
  return squeeze(labelsOf(element).map((label) => contentOf(label, element, 0)).join(" "));
}

function labelsOf(element) {
  // A browser goes through the whole document for the labels of one field. Who reads many fields does so once.
  if (pass === null) return Array.from(element.labels || []);
  const root = rootOf(element);
  let byField = pass.labels.get(root);
  if (byField === undefined) {
    pass.labels.set(root, byField = new Map());
    for (const label of root instanceof Document || root instanceof ShadowRoot ? queryAll(root, "label") : []) {
      const known = byField.get(label.control);
      if (known === undefined) byField.set(label.control, [label]);
      else known.push(label);
    }
  }
  return byField.get(element) ?? [];
}

function childText(element, tag) {
  for (let child = firstNodeOf(element); child !== null; child = nextNodeOf(child)) {
    if (child instanceof Element && tagOf(child) === tag) return squeeze(contentOf(child, null, 0));
  }
  return "";
}

function contentOf(node, except, depth) {
  // The text a person would read there. A label's own field is not part of its text.
  if (nodeTypeOf(node) === Node.TEXT_NODE) return node.data.slice(0, 10 * TEXT_MAX);
  if (!(node instanceof Element || node instanceof ShadowRoot) || node === except || depth > NESTING_MAX) return "";
  const isKept = pass !== null && except === null && depth > 0;
  let text = isKept ? pass.texts.get(node) : undefined;
  if (text === undefined) {
    text = freshContentOf(node, except, depth);
    if (isKept) pass.texts.set(node, text);
  }
  return text;
}

function freshContentOf(node, except, depth) {
  if (node instanceof Element) {
    const tag = tagOf(node);
    if (UNREAD_TAGS.has(tag)) return "";
    if (depth > 0) {
      if (attributeOf(node, "aria-hidden") === "true" || isUndrawn(node)) return "";
      const label = attributeOf(node, "aria-label") || (tag === "img" ? attributeOf(node, "alt") : "");
      if (label) return isInline(node) ? label : ` ${label} `;
      if (tag === "input" || tag === "textarea" || tag === "select") return " ";
    }
  }
  let text = "";
  for (const child of contentNodesOf(node)) {
    text += contentOf(child, except, depth + 1);
    if (text.length > 4 * TEXT_MAX) break;
  }
  return isInline(node) ? text : ` ${text} `;
}

function contentNodesOf(node) {
  // What is drawn inside it. An array is gone through several times faster than a live list.
  if (node instanceof HTMLSlotElement) {
    const assigned = node.assignedNodes();
    if (assigned.length) return assigned;
  }
  const nodes = [];
  let child = firstNodeOf(node.shadowRoot instanceof ShadowRoot ? node.shadowRoot : node);
  for (; child !== null; child = nextNodeOf(child)) nodes.push(child);
  return nodes;
}

function isInline(node) {
  return node instanceof Element && styleOf(node).display.startsWith("inline");
}

function isUndrawn(element) {
  // Neither it nor anything in it is drawn. A `display: contents` element has no box, but its children do.
  const style = styleOf(element);
  return style.display === "none" || (style.visibility !== "visible" && !firstElementOf(element));
}

function describe(element) {
  // One line that lets a reader recognise the element, however long its own names are. What the page wrote ends where
  // its quotes or brackets do, for it has none of its own.
  const tag = shorten(tagOf(element), 60);
  let text = "<" + tag;
  for (const name of ["id", "class", "name", "type", "role", "aria-label", "href"]) {
    const value = attributeOf(element, name);
    if (value) text += ` ${name}="${shorten(squeeze(value.slice(0, TEXT_MAX)), 60).replaceAll('"', "'")}"`;
  }
  const content = shorten(squeeze(contentOf(element, null, 0)), 60).replaceAll("<", "‹").replaceAll(">", "›");
  return content ? `${text}>${content}</${tag}>` : `${text}>`;
}

// What an element is to a person: its ARIA role, its accessible name and its states.
//
// A subset of the ARIA and HTML-AAM rules that covers what pages really use. Nothing here changes the page. Elements
// are read through functions taken from the prototypes, because a form whose field is called "getAttribute" hides its
// own method.

const attributeOf = Function.prototype.call.bind(Element.prototype.getAttribute);
const hasAttribute = Function.prototype.call.bind(Element.prototype.hasAttribute);
const matches = Function.prototype.call.bind(Element.prototype.matches);
const rootOf = Function.prototype.call.bind(Node.prototype.getRootNode);
const parentNodeOf = Function.prototype.call.bind(Object.getOwnPropertyDescriptor(Node.prototype, "parentNode").get);
const childNodesOf = Function.prototype.call.bind(Object.getOwnPropertyDescriptor(Node.prototype, "childNodes").get);
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

const squeeze = (text) => text.replace(/\s+/g, " ").trim();
const shorten = (text, most = TEXT_MAX) => text.length > most ? text.slice(0, most - 1) + "…" : text;

function parentOf(element) {
  // The parent as it is drawn: through slots and shadow roots.
  if (element.assignedSlot instanceof Element) return element.assignedSlot;
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
    const role = squeeze(given).split(" ")[0].toLowerCase();
    if (role === "none" || role === "presentation") return null;
    if (role) return role;
  }
  const tag = tagOf(element);
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
  return Boolean(attributeOf(element, "aria-label") || attributeOf(element, "aria-labelledby"));
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
    const name = squeeze(labels.filter(Boolean).map((label) => contentOf(label, null, 0)).join(" "));
    if (name) return shorten(name);
  }
  const own = squeeze(attributeOf(element, "aria-label") || "") || nativeNameOf(element);
  if (own) return shorten(own);
  if (NAMED_BY_CONTENT.has(role)) {
    const content = squeeze(contentOf(element, null, 0));
    if (content) return shorten(content);
  }
  return shorten(squeeze(attributeOf(element, "title") || attributeOf(element, "placeholder") || ""));
}

function nativeNameOf(element) {
  switch (tagOf(element)) {
    case "input":
      if (element.type === "submit") return squeeze(element.value) || labelOf(element) || "Submit";
      if (element.type === "reset") return squeeze(element.value) || labelOf(element) || "Reset";
      if (element.type === "button") return squeeze(element.value) || labelOf(element);
      if (element.type === "image") return squeeze(attributeOf(element, "alt") || "");
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
  return squeeze(Array.from(element.labels || [], (label) => contentOf(label, element, 0)).join(" "));
}

function childText(element, tag) {
  for (const child of childNodesOf(element)) if (child.localName === tag) return squeeze(contentOf(child, null, 0));
  return "";
}

function contentOf(node, except, depth) {
  // The text a person would read there. A label's own field is not part of its text.
  if (node.nodeType === Node.TEXT_NODE) return node.data.slice(0, 10 * TEXT_MAX);
  if (!(node instanceof Element || node instanceof ShadowRoot) || node === except || depth > 40) return "";
  if (node instanceof Element) {
    const tag = tagOf(node);
    if (matches(node, UNREAD)) return "";
    if (depth > 0) {
      if (attributeOf(node, "aria-hidden") === "true" || isUndrawn(node)) return "";
      const label = attributeOf(node, "aria-label") || (tag === "img" ? attributeOf(node, "alt") : "");
      if (label) return label;
      if (tag === "input" || tag === "textarea" || tag === "select") return depth > 0 ? " " : "";
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
  if (node instanceof HTMLSlotElement) {
    const assigned = node.assignedNodes();
    if (assigned.length) return assigned;
  }
  return childNodesOf(node.shadowRoot instanceof ShadowRoot ? node.shadowRoot : node);
}

function isInline(node) {
  return node instanceof Element && getComputedStyle(node).display.startsWith("inline");
}

function isUndrawn(element) {
  // Neither it nor anything in it is drawn. A `display: contents` element has no box, but its children do.
  const style = getComputedStyle(element);
  return style.display === "none" || (style.visibility !== "visible" && !element.firstElementChild);
}

function describe(element) {
  // One line that lets a reader recognise the element.
  let text = "<" + tagOf(element);
  for (const name of ["id", "class", "name", "type", "role", "aria-label", "href"]) {
    const value = attributeOf(element, name);
    if (value) text += ` ${name}="${shorten(squeeze(value), 60)}"`;
  }
  const content = shorten(squeeze(contentOf(element, null, 0)), 60);
  return content ? `${text}>${content}</${tagOf(element)}>` : `${text}>`;
}

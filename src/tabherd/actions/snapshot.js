// Writes a document down as a person who cannot see it would have it read out: one line per thing, indented.
//
//     heading "Sign in" [level=1]
//     textbox "E-mail" [ref=kqa1] value="a@b.test"
//     button "Send" [ref=kqa2] [disabled]
//
// What can be acted upon has a ref, and so has what can be looked into. Containers that say nothing are left out and
// their content moves up. The caller puts the content of frames in the places that `frames` names.

// Things that have a ref besides those a person can use.
const REFERRED = new Set(["dialog", "alertdialog", "form", "iframe", "img", "table", "grid", "region", "video"]);
const INTERACTIVE = new Set([
  "button", "checkbox", "combobox", "gridcell", "link", "listbox", "menuitem", "menuitemcheckbox", "menuitemradio",
  "option", "radio", "scrollbar", "searchbox", "slider", "spinbutton", "switch", "tab", "textbox", "treeitem",
]);
// Containers worth a line of their own even without a name.
const KEPT = new Set([
  "alert", "alertdialog", "article", "banner", "complementary", "contentinfo", "dialog", "form", "grid", "group",
  "iframe", "list", "listitem", "main", "menu", "menubar", "navigation", "radiogroup", "region", "row", "search",
  "status", "table", "tablist", "toolbar", "tree",
]);
const SELECTABLE = new Set(["option", "tab", "treeitem", "row", "gridcell"]);
const VALUED = new Set(["textbox", "searchbox", "spinbutton", "slider", "combobox", "progressbar", "meter"]);

class Notes {
  constructor(order) {
    this.order = order;
    this.lines = [];
    this.frames = [];
    this.chars = 0;
    this.isCut = false;
  }

  add(depth, text) {
    if (this.isCut) return false;
    const line = "  ".repeat(depth) + text;
    this.chars += line.length + 1;
    // The caller's bound is on what people read, so the line that would pass it is not begun.
    if (this.chars > this.order.charsMax) {
      this.isCut = true;
      return false;
    }
    this.lines.push(line);
    return true;
  }
}

const quote = (text) => JSON.stringify(shorten(text));

function isUsable(element, role) {
  if (INTERACTIVE.has(role)) return true;
  if (isEditingHost(element) || hasAttribute(element, "onclick")) return true;
  const tabindex = attributeOf(element, "tabindex");
  if (tabindex !== null && Number(tabindex) >= 0) return true;
  // A hand over it that it does not have from what is around it: a page's own kind of button.
  const parent = parentOf(element);
  return getComputedStyle(element).cursor === "pointer" && (!parent || getComputedStyle(parent).cursor !== "pointer");
}

function statesOf(element, role) {
  let text = "";
  if (role === "checkbox" || role === "radio" || role === "switch" || role.startsWith("menuitem")) {
    const checked = String(stateOf(element, "checked"));
    if (checked !== "false") text += checked === "mixed" ? " [checked=mixed]" : " [checked]";
  }
  if (!isEnabled(element)) text += " [disabled]";
  if (role === "heading") text += ` [level=${stateOf(element, "level")}]`;
  if (SELECTABLE.has(role) && String(stateOf(element, "selected")) === "true") text += " [selected]";
  const isSummary = tagOf(element) === "summary";
  const expanded = isSummary ? String(stateOf(element, "expanded")) : attributeOf(element, "aria-expanded");
  if (expanded === "true") text += " [expanded]";
  else if (expanded === "false") text += " [collapsed]";
  if (String(stateOf(element, "pressed")) === "true") text += " [pressed]";
  if (hasFocus(element) && element !== document.body) text += " [focused]";
  return text;
}

function valueOf(element, role) {
  if (!VALUED.has(role)) return "";
  let value = attributeOf(element, "aria-valuetext") || attributeOf(element, "aria-valuenow") || "";
  const labels = (options) => Array.from(options, (each) => squeeze(each.label));
  if (isTextField(element)) value = element.type === "password" ? "•".repeat(element.value.length) : element.value;
  else if (element instanceof HTMLSelectElement) value = labels(element.selectedOptions).join(", ");
  else if (isEditingHost(element)) value = squeeze(contentOf(element, null, 0));
  else if ("value" in element && typeof element.value === "number") value = String(element.value);
  let text = value ? ` value=${quote(value)}` : "";
  if (role === "combobox" && element instanceof HTMLSelectElement) {
    text += ` options=${quote(labels(element.options).join(" | "))}`;
  }
  return text;
}

function write(node, depth, notes, nameAbove) {
  // Text that the element above already has as its name is not repeated.
  if (notes.isCut) return;
  if (node.nodeType === Node.TEXT_NODE) {
    const text = squeeze(node.data);
    if (text && !nameAbove && !notes.order.isInteractive) notes.add(depth, `text ${quote(text)}`);
    return;
  }
  if (!(node instanceof Element)) return;
  const tag = tagOf(node);
  if (["script", "style", "template", "noscript", "head", "link", "meta", "title", "br"].includes(tag)) return;
  if (attributeOf(node, "aria-hidden") === "true") return;
  const style = getComputedStyle(node);
  // Without a box of its own it is still seen by what is in it.
  if (style.display !== "contents" && !node.checkVisibility()) return;
  const isShown = style.visibility === "visible";
  const role = isShown ? roleOf(node) : null;
  const usable = isShown && isUsable(node, role);
  // A page's own kind of button has no role to be named by.
  const name = role !== null ? nameOf(node, role) : usable ? nameOf(node, "button") : "";
  const isTold = usable || role === "iframe" || (!notes.order.isInteractive && isWorthALine(role, name));
  const isWritten = isShown && isTold;
  let inner = depth;
  // A label is read out as the name of its field.
  let covered = nameAbove || (node instanceof HTMLLabelElement && node.control !== null);
  if (isWritten) {
    const ref = usable || REFERRED.has(role) ? ` [ref=${refOf(node)}]` : "";
    const called = name ? ` ${quote(name)}` : "";
    const line = (role ?? "generic") + called + ref + statesOf(node, role ?? "") + valueOf(node, role);
    if (!notes.add(depth, line)) return;
    inner = depth + 1;
    covered ||= Boolean(name) && (NAMED_BY_CONTENT.has(role) || role === null);
    if (isFrame(node)) notes.frames.push({line: notes.lines.length - 1, depth: inner, ref: refOf(node)});
  } else if (role === "paragraph" && !notes.order.isInteractive) {
    writeRuns(node, depth, notes);
    return;
  }
  // These say all of it in their own line.
  if (tag === "svg" || (isWritten && VALUED.has(role))) return;
  const isFolded = tag === "details" && !node.open;
  for (const child of contentNodesOf(node)) {
    const isSummary = child instanceof Element && tagOf(child) === "summary";
    if (isFolded ? isSummary : isShown || child instanceof Element) write(child, inner, notes, covered);
  }
}

function isWorthALine(role, name) {
  if (role === null || role === "paragraph") return false;
  return KEPT.has(role) || Boolean(name) || role === "separator" || role === "heading";
}

function writeRuns(node, depth, notes) {
  // A paragraph is one line of text, unless there is something to use in it.
  const hasMore = Array.from(queryAll(node, "*")).some((each) => {
    const role = roleOf(each);
    return isUsable(each, role) || isWorthALine(role, nameOf(each, role));
  });
  if (hasMore) {
    for (const child of contentNodesOf(node)) write(child, depth, notes, false);
    return;
  }
  const text = squeeze(contentOf(node, null, 0));
  if (text) notes.add(depth, `text ${quote(text)}`);
}

function snapshot(order) {
  // The whole document, or the element that was located before.
  const notes = new Notes(order);
  const root = order.isPart ? held : document.body || document.documentElement;
  if (order.isPart && (root === null || !root.isConnected)) return unmet("attached");
  if (root) {
    if (order.isPart) write(root, 0, notes, false);
    else for (const child of contentNodesOf(root)) write(child, 0, notes, false);
  }
  return {done: {lines: notes.lines, frames: notes.frames, isCut: notes.isCut}};
}

function holdRef(ref) {
  held = byRef(ref);
  return held !== null;
}

// Reads a document as a person who cannot see it would have it read out: a tree of things, in one pass.
//
// What can be acted upon has a ref, and so has what can be looked into. Containers that say nothing are left out and
// their content moves up; what only repeats a name is left out too; what is inert is named but not looked into; and
// when a modal dialog is open there is nothing but that. `outline.js` writes the tree down.
//
// The pass is bounded in time, in depth and in the size of what it gathers. What is beyond is cut, and that is said.

// Things that have a ref besides those a person can use.
const REFERRED = new Set(["dialog", "alertdialog", "form", "iframe", "table", "grid", "region", "video"]);
const INTERACTIVE = new Set([
  "button", "checkbox", "combobox", "link", "listbox", "menuitem", "menuitemcheckbox", "menuitemradio", "option",
  "radio", "scrollbar", "searchbox", "slider", "spinbutton", "switch", "tab", "textbox", "treeitem",
]);
// Containers worth a line of their own even without a name, if there is something in them.
const KEPT = new Set([
  "alert", "alertdialog", "article", "banner", "complementary", "contentinfo", "dialog", "form", "grid", "iframe",
  "list", "listitem", "log", "main", "menu", "menubar", "navigation", "paragraph", "region", "row", "search", "status",
  "table", "tablist", "toolbar", "tree", "treegrid", "video",
]);
const CELLS = new Set(["cell", "columnheader", "gridcell", "rowheader"]);
const DIALOGS = new Set(["alertdialog", "dialog"]);
// These are told by a heading of their own, if they have one.
const HEADED = new Set(["article", "complementary", "form", "region"]);
const SELECTABLE = new Set(["option", "tab", "treeitem", "row", "gridcell"]);
const CHECKABLE = new Set(["checkbox", "menuitemcheckbox", "menuitemradio", "radio", "switch"]);
const VALUED = new Set(["textbox", "searchbox", "spinbutton", "slider", "combobox", "progressbar", "meter"]);
const UNWRITTEN = new Set([
  "base", "head", "link", "meta", "noscript", "script", "source", "style", "template", "title", "track", "wbr",
]);
// What is in these is drawn by themselves, or not at all.
const OPAQUE = new Set(["audio", "canvas", "embed", "object", "svg", "video"]);
const DEPTH_MAX = 1_500;
// How often the clock is looked at.
const NODES_A_LOOK = 64;
// What is gathered may be shortened by so much when it is written.
const SPARE = 2;
const checkVisibility = Function.prototype.call.bind(Element.prototype.checkVisibility);

class Gathering {
  constructor(order) {
    this.isInteractive = order.isInteractive;
    this.end = performance.now() + order.timeMs;
    this.charsMax = SPARE * order.charsMax;
    this.chars = 0;
    this.nodes = 0;
    this.isCut = false;
    // Everything that has a ref, and the modal dialogs among them.
    this.referred = [];
    this.modals = [];
    // Whether a block ends between the last text and the next.
    this.isParted = true;
    const focused = focusedElement();
    // The body has it when nothing has.
    this.focused = focused === theBody() ? null : focused;
  }

  isOver(depth) {
    // Once over, it is over for all.
    if (depth > DEPTH_MAX || this.chars > this.charsMax) this.isCut = true;
    if (++this.nodes % NODES_A_LOOK === 0 && performance.now() > this.end) this.isCut = true;
    return this.isCut;
  }
}

function isUsable(element, role, cursorAround = cursorAbove(element)) {
  if (INTERACTIVE.has(role)) return true;
  const tabindex = attributeOf(element, "tabindex");
  if (tabindex !== null && Number(tabindex) >= 0) return true;
  if (hasAttribute(element, "onclick") || isEditingHost(element)) return true;
  // Where the field itself is not drawn, its label is what a person clicks.
  if (element instanceof HTMLLabelElement && element.control) return !checkVisibility(element.control);
  // A hand over it that it does not have from what is around it: a page's own kind of button.
  return cursorAround !== "pointer" && styleOf(element).cursor === "pointer";
}

function cursorAbove(element) {
  const parent = parentOf(element);
  return parent === null ? "" : styleOf(parent).cursor;
}

function isLabelOfShown(element) {
  return element instanceof HTMLLabelElement && element.control !== null && checkVisibility(element.control);
}

function statesOf(element, role, gathering, isDoubtful) {
  let text = "";
  const bearer = element instanceof HTMLLabelElement && element.control ? element.control : element;
  if (CHECKABLE.has(role) || bearer !== element) {
    const checked = String(stateOf(bearer, "checked"));
    if (checked !== "false") text += checked === "mixed" ? " [checked=mixed]" : " [checked]";
  }
  if (isDoubtful && !isEnabled(element)) text += " [disabled]";
  if (role === "heading") text += ` [level=${stateOf(element, "level")}]`;
  if (SELECTABLE.has(role) && String(stateOf(element, "selected")) === "true") text += " [selected]";
  const isSummary = tagOf(element) === "summary";
  const expanded = isSummary ? String(stateOf(element, "expanded")) : attributeOf(element, "aria-expanded");
  if (expanded === "true") text += " [expanded]";
  else if (expanded === "false") text += " [collapsed]";
  if (attributeOf(element, "aria-pressed") === "true") text += " [pressed]";
  if (![null, "", "false"].includes(attributeOf(element, "aria-current"))) text += " [current]";
  if (element === gathering.focused) text += " [focused]";
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
    text += ` options=${quote(labels(element.options).join(" | "), OPTIONS_MAX)}`;
  }
  return text;
}

function gather(node, into, around, depth, gathering) {
  // Puts what the node is into a list. `around` is what it has from the elements around it.
  if (gathering.isOver(depth)) return;
  if (nodeTypeOf(node) === Node.TEXT_NODE) {
    if (!around.isCovered && !gathering.isInteractive) gatherText(node.data, into, gathering);
    return;
  }
  if (!(node instanceof Element)) return;
  const tag = tagOf(node);
  if (UNWRITTEN.has(tag) || attributeOf(node, "aria-hidden") === "true") return;
  if (tag === "br") {
    if (!around.isCovered && !gathering.isInteractive) gatherText(" ", into, gathering);
    return;
  }
  const style = styleOf(node);
  // Without a box of its own it is still seen by what is in it.
  if (style.display === "none" || (style.display !== "contents" && !checkVisibility(node))) return;
  const isBlock = !style.display.startsWith("inline") && style.display !== "contents";
  if (isBlock) gathering.isParted = true;
  gatherElement(node, tag, style, into, around, depth, gathering);
  if (isBlock) gathering.isParted = true;
}

function gatherText(data, into, gathering) {
  const text = data.slice(0, 10 * TEXT_MAX);
  const last = into.at(-1);
  const isJoined = last !== undefined && last.role === "text" && !gathering.isParted;
  if (isJoined) {
    if (last.name.length < 10 * TEXT_MAX) last.name += text;
  } else if (/\S/.test(text)) {
    into.push({role: "text", name: text, children: []});
    gathering.isParted = false;
  } else return;
  gathering.chars += Math.min(text.length, TEXT_MAX);
}

function gatherElement(node, tag, style, into, around, depth, gathering) {
  const isShown = style.visibility === "visible";
  const role = isShown ? roleOf(node) : null;
  const isUsed = isShown && isUsable(node, role, around.cursor);
  const isDoubtful = around.isDoubtful || hasAttribute(node, "aria-disabled") || matches(node, ":disabled");
  const isCell = CELLS.has(role) && !isUsed;
  // A page's own kind of button is named when it is known what is in it.
  const name = role === null || role === "paragraph" || isCell ? "" : nameOf(node, role);
  if (hasAttribute(node, "inert")) {
    if (!gathering.isInteractive) into.push({role: role ?? "generic", name, states: " [inert]", children: []});
    return;
  }
  const isTold = isUsed || role === "iframe" || DIALOGS.has(role) ||
    (!gathering.isInteractive && !around.isNamed && isWorthTelling(role, name));
  const isNamed = around.isNamed || (isTold && !isCell && Boolean(name) && NAMED_BY_CONTENT.has(role));
  const inner = {
    cursor: style.cursor,
    isDoubtful,
    isNamed,
    // Text that an element above already has as its name is not repeated. A label is read out with its field.
    isCovered: !isShown || isNamed || around.isCovered || isLabelOfShown(node) || tag === around.caption,
    caption: isTold ? CAPTIONS[tag] ?? null : around.caption,
    links: KEPT.has(role) && role !== "paragraph" ? new Map() : around.links,
  };
  if (!isTold) {
    gatherContent(node, tag, into, inner, depth, gathering);
    return;
  }
  const item = {
    role: role ?? "generic", name, element: node, children: [], isReferred: isUsed || REFERRED.has(role),
    states: statesOf(node, role ?? "", gathering, isUsed && isDoubtful), value: valueOf(node, role), isDropped: false,
  };
  gathering.chars += name.length + item.value.length + 10;
  // These say all of it in their own line.
  if (!isFrame(node) && !VALUED.has(role)) gatherContent(node, tag, item.children, inner, depth, gathering);
  finish(item, role, isUsed, around, gathering);
  if (item.isDropped) return;
  // A text that the thing after it is called by is its label.
  const before = into.at(-1);
  if (before?.role === "text" && item.name && squeeze(before.name) === item.name) into.pop();
  into.push(item);
  if (item.isReferred) gathering.referred.push(item);
  if (DIALOGS.has(role) && isModal(node)) gathering.modals.push(item);
}

const CAPTIONS = {fieldset: "legend", figure: "figcaption", table: "caption"};

function gatherContent(node, tag, into, around, depth, gathering) {
  if (OPAQUE.has(tag)) return;
  const isFolded = tag === "details" && !node.open;
  for (const child of contentNodesOf(node)) {
    const isSummary = child instanceof Element && tagOf(child) === "summary";
    if (isFolded ? isSummary : true) gather(child, into, around, depth + 1, gathering);
  }
}

function isWorthTelling(role, name) {
  if (role === null || role === "separator" || role === "rowgroup") return false;
  return KEPT.has(role) || CELLS.has(role) || Boolean(name) || role === "heading";
}

function finish(item, role, isUsed, around, gathering) {
  // Now that it is known what is in it.
  const {children, element} = item;
  if (isUsed && role === null) {
    // With things of its own in it, it is a container that can be clicked.
    const isPlain = children.every((child) => child.role === "text");
    item.name = nameOf(element, isPlain ? "button" : null);
    if (isPlain) item.children = [];
    const box = item.name || !isPlain ? null : boundsOf(element);
    item.isDropped = box !== null && (box.width < 1 || box.height < 1);
  } else if (!isUsed && children.length === 0 && !item.name) {
    item.isDropped = !["iframe", "video", "dialog", "alertdialog"].includes(role) && !CELLS.has(role);
  } else if (role === "heading" && children.length === 1 && children[0].name === item.name) {
    item.name = "";
  } else if (HEADED.has(role) && children[0]?.role === "heading" && headlineOf(children[0]) === item.name) {
    item.name = "";
  }
  if (role === "link" && item.children.length === 0) mergeTwins(item, around.links);
}

const headlineOf = (heading) => heading.name || heading.children[0]?.name;

function mergeTwins(link, links) {
  // A picture that leads where the text beside it leads says nothing new.
  const href = attributeOf(link.element, "href");
  if (!href || !leadsSomewhere(link.element)) return;
  link.isPicture = squeeze(textContentOf(link.element) ?? "") === "";
  const twin = links.get(href);
  const isAlike = twin !== undefined && (twin.name === link.name || (twin.isPicture ? !twin.name : !link.name));
  if (isAlike && twin.isPicture && !link.isPicture) twin.isDropped = true;
  else if (isAlike) link.isDropped = true;
  if (!link.isDropped) links.set(href, link);
}

function isModal(dialog) {
  // Shown as such by the browser, or called so by the page and really on top of it.
  if (matches(dialog, ":modal")) return true;
  if (attributeOf(dialog, "aria-modal") !== "true") return false;
  return checkVisibility(dialog, {opacityProperty: true}) && isOnTop(dialog);
}

function isOnTop(element) {
  const at = middleOf(element);
  const hit = at === null ? null : elementAt(at.x, at.y);
  return hit !== null && isInside(hit, element);
}

function topmost(modals) {
  // The one that a press would reach, of several that are open.
  return modals.findLast(({element}) => isOnTop(element)) ?? modals.at(-1);
}

function gathered(order, roots) {
  const gathering = new Gathering(order);
  const around = {cursor: "", isDoubtful: false, isNamed: false, isCovered: false, caption: null, links: new Map()};
  gathering.items = [];
  for (const root of roots) gather(root, gathering.items, around, 0, gathering);
  return gathering;
}

function snapshot(order) {
  // The whole document, or the element that was located before.
  const root = order.isPart ? held : theBody() || theRoot();
  if (order.isPart && (root === null || !isAttached(root))) return unmet("attached");
  return inOnePass(() => {
    const content = root ? Array.from(contentNodesOf(root)) : [];
    const part = gathered(order, order.isPart ? [root] : content);
    // Whether a thing is the only one of its kind is a matter of the whole document.
    const all = order.isPart ? gathered({...order, isInteractive: true}, contentNodesOf(theBody() ?? root)) : part;
    for (const item of all.isCut ? [] : all.referred) item.facts = factsOf(item.element);
    const counts = all.isCut ? null : tally(all.referred.map((item) => item.facts));
    showing++;
    const isModal = !order.isPart && part.modals.length > 0;
    const outline = new Outline(order, counts);
    outline.write(isModal ? [topmost(part.modals)] : part.items);
    return {done: {lines: outline.lines, frames: outline.frames, isCut: part.isCut || outline.isCut, isModal}};
  });
}

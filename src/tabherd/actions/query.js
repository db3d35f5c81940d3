// Finds elements: CSS, text, role and name, XPath, and refs (see refs.js).
//
// Every way looks through open shadow roots. Nothing here changes the page.

function* rootsIn(root) {
  // The root itself and every open shadow root below it.
  yield root;
  if (root.shadowRoot instanceof ShadowRoot) yield* rootsIn(root.shadowRoot);
  const walker = Document.prototype.createTreeWalker.call(document, root, NodeFilter.SHOW_ELEMENT);
  for (let element = walker.nextNode(); element !== null; element = walker.nextNode()) {
    if (element.shadowRoot instanceof ShadowRoot) yield* rootsIn(element.shadowRoot);
  }
}

function queryAll(root, css) {
  const kind = root instanceof Document ? Document : root instanceof ShadowRoot ? DocumentFragment : Element;
  return kind.prototype.querySelectorAll.call(root, css);
}

const FINDERS = {
  css(root, part) {
    const found = [];
    for (const each of rootsIn(root)) found.push(...queryAll(each, part.body));
    return found;
  },

  xpath(root, part) {
    const found = Document.prototype.evaluate.call(
      document, part.body, root, null, XPathResult.ORDERED_NODE_SNAPSHOT_TYPE, null);
    const nodes = Array.from({length: found.snapshotLength}, (_, at) => found.snapshotItem(at));
    return nodes.filter((node) => node instanceof Element);
  },

  text(root, part) {
    const wanted = part.isExact ? squeeze(part.body) : squeeze(part.body).toLowerCase();
    const found = [];
    for (const each of rootsIn(root)) {
      const top = each instanceof Document ? theBody() || theRoot() : each;
      if (top) findText(top, wanted, part.isExact, found);
    }
    return found;
  },

  role(root, part) {
    const found = [];
    inOnePass(() => {
      for (const each of rootsIn(root)) {
        for (const element of queryAll(each, "*")) if (hasRole(element, part)) found.push(element);
      }
    });
    return found;
  },

  ref(root, part) {
    const element = byRef(part.body);
    if (element === null) throw new StaleRef();
    return [element];
  },
};

class StaleRef extends Error {}

function staleness(ref) {
  // What it was, where that is still known.
  const was = knownAs(ref);
  return was === undefined ? {stale: ref} : {stale: ref, role: was.role, name: was.name};
}

// What is in the document but is no text of it.
const UNREAD = "script, style, noscript, template";

function findText(node, wanted, isExact, found) {
  // The smallest elements that have it; whether anything was found below.
  if (node instanceof Element) {
    if (matches(node, UNREAD)) return false;
    if (tagOf(node) === "input" && ["submit", "button", "reset"].includes(node.type)) {
      const value = squeeze(node.value);
      if (isExact ? value !== wanted : !value.toLowerCase().includes(wanted)) return false;
      found.push(node);
      return true;
    }
  }
  const raw = squeeze(readableOf(node));
  if (!(isExact ? raw : raw.toLowerCase()).includes(wanted) && !hasButtons(node)) return false;
  let isBelow = false;
  for (const child of childNodesOf(node)) {
    if (child instanceof Element && findText(child, wanted, isExact, found)) isBelow = true;
  }
  if (isBelow) return true;
  if (!(node instanceof Element) || (isExact ? raw !== wanted : !raw.toLowerCase().includes(wanted))) return false;
  found.push(node);
  return true;
}

function readableOf(node) {
  // Its text without that of scripts and the like, of which most elements have none.
  if (queryAll(node, UNREAD).length === 0) return textContentOf(node) || "";
  let text = "";
  for (const child of childNodesOf(node)) {
    if (nodeTypeOf(child) === Node.TEXT_NODE) text += child.data;
    else if (child instanceof Element && !matches(child, UNREAD)) text += readableOf(child);
  }
  return text;
}

function hasButtons(node) {
  // Their text is an attribute, which the text of what is around them does not contain.
  return queryAll(node, "input[type=submit], input[type=button], input[type=reset]").length > 0;
}

function hasRole(element, part) {
  if (roleOf(element) !== part.role || isHiddenFromReaders(element)) return false;
  for (const [state, wanted] of Object.entries(part.states)) {
    if (String(stateOf(element, state)) !== wanted) return false;
  }
  if (part.name === null) return true;
  const fold = (text) => part.isFolded ? squeeze(text).toLowerCase() : squeeze(text);
  const name = fold(nameOf(element, part.role));
  return part.isPartial ? name.includes(fold(part.name)) : name === fold(part.name);
}

function isHiddenFromReaders(element) {
  for (let each = element; each !== null; each = parentOf(each)) {
    if (attributeOf(each, "aria-hidden") === "true") return true;
  }
  return !isDrawn(element, {visibilityProperty: true});
}

function stateOf(element, state) {
  switch (state) {
    case "checked":
      if (element instanceof HTMLInputElement && ["checkbox", "radio"].includes(element.type)) {
        return element.indeterminate ? "mixed" : element.checked;
      }
      return attributeOf(element, "aria-checked") || false;
    case "disabled": return !isEnabled(element);
    case "selected":
      return element instanceof HTMLOptionElement ? element.selected : attributeOf(element, "aria-selected") || false;
    case "expanded":
      if (element instanceof HTMLElement && tagOf(element) === "summary") return Boolean(element.parentElement?.open);
      return attributeOf(element, "aria-expanded") || false;
    case "pressed": return attributeOf(element, "aria-pressed") || false;
    case "level": {
      const level = /^h([1-6])$/.exec(tagOf(element));
      return attributeOf(element, "aria-level") || (level ? level[1] : "");
    }
  }
  return "";
}

function resolve(parts) {
  // Follows the parts from the document: each looks inside what the one before has found. A frame ends our reach:
  // `frame` is then the number of the part that found it, and the caller goes on in its document.
  let found = [document];
  for (let at = 0; at < parts.length; at++) {
    const part = parts[at];
    const next = new Set();
    try {
      // Counted as a refusal of several lists them.
      const picked = part.by === "nth" ? [preferVisible(found).at(part.index)].filter(Boolean) : null;
      for (const element of picked ?? found.flatMap((root) => FINDERS[part.by](root, part))) next.add(element);
    } catch (error) {
      if (error instanceof StaleRef) return staleness(part.body);
      if (error instanceof DOMException) return {invalid: error.message, part: part.body};
      throw error;
    }
    found = [...next];
    if (found.length === 0) return {elements: found, part: at};
    if (at < parts.length - 1 && parts[at + 1].by !== "nth") {
      const frames = preferVisible(found).filter((element) => isFrame(element));
      if (frames.length > 1) return {elements: frames};
      if (frames.length === 1) return {frame: at, elements: frames};
    }
  }
  return {elements: found};
}

const isFrame = (element) => element instanceof HTMLIFrameElement || element instanceof HTMLFrameElement;

function preferVisible(elements) {
  // A person who names something means what can be seen.
  if (elements.length < 2) return elements;
  const visible = elements.filter(isVisible);
  return visible.length ? visible : elements;
}

// Tells what a selector that finds nothing may have meant: the nearest things of the page, by role and name.
//
// What is wanted is read from the part that failed and compared with what the page calls its things (see `alike.js`).
// It is asked for at the end of a slice only, and bounded in elements and in time, so that waiting on a large page is
// hardly slower for it; what is far off is not offered at all. Nothing here changes the page.

const NEAREST_MAX = 3;
// How long the page is gone through, and how many elements at most.
const SURVEY_MS = 6;
const SURVEYED_MAX = 20_000;
// So many are looked at closely, which costs layout.
const CLOSE_LOOKS_MAX = 8;
const FRAMES_TOLD_MAX = 3;
const FRAMES_SEEN_MAX = 30;
// What is cut out of a hostile page's names and lines.
const NAME_MAX = 80;
const ROLE_MAX = 30;

// Where pages put what they call a thing.
const CALLED_BY = [
  "aria-label", "placeholder", "title", "alt", "name", "id", "data-testid", "data-test-id", "data-test", "data-qa",
  "data-cy",
];
// What makes a thing of any kind one that is meant to be used.
const USED_BY = ["role", "tabindex", "onclick", "contenteditable"];
const OFFERED_TAGS = new Set([
  "a", "button", "frame", "h1", "h2", "h3", "h4", "h5", "h6", "iframe", "img", "input", "option", "select", "summary",
  "textarea", "video",
]);
// Labels are told as the fields they belong to.
const SILENT_TAGS = new Set(["label", "script", "style", "template", "noscript"]);

// --- What the page has ------------------------------------------------------------------------------------------

function* everyElement(root) {
  // In the order of the document, each shadow root after its host.
  const walker = Document.prototype.createTreeWalker.call(document, root, NodeFilter.SHOW_ELEMENT);
  for (let element = walker.nextNode(); element !== null; element = walker.nextNode()) {
    yield element;
    if (element.shadowRoot instanceof ShadowRoot) yield* everyElement(element.shadowRoot);
  }
}

const hasAttributes = Function.prototype.call.bind(Element.prototype.hasAttributes);
const firstChildOf = Function.prototype.call.bind(
  Object.getOwnPropertyDescriptor(Element.prototype, "firstElementChild").get);

function textIn(element) {
  // The first words inside, without reading all of it.
  if (firstChildOf(element) === null) return textContentOf(element).slice(0, COMPARED_CHARS_MAX);
  const walker = Document.prototype.createTreeWalker.call(document, element, NodeFilter.SHOW_TEXT);
  let text = "";
  for (let nodes = 0; nodes < 12 && text.length < COMPARED_CHARS_MAX; nodes++) {
    const node = walker.nextNode();
    if (node === null) break;
    text += ` ${node.data.slice(0, COMPARED_CHARS_MAX)}`;
  }
  return text;
}

function likeness(element, wanted) {
  // By everything that the page calls it.
  const tag = tagOf(element);
  if (SILENT_TAGS.has(tag) || (tag.endsWith("frame") && wanted.role !== "iframe")) return 0;
  let isUsed = OFFERED_TAGS.has(tag), best = 0;
  const compare = (text, weight) => {
    const start = text.slice(0, COMPARED_CHARS_MAX);
    if (!wanted.trace.test(start)) return;
    for (const each of wanted.texts) best = Math.max(best, weight * alikeness(each, start));
  };
  if (hasAttributes(element)) {
    isUsed ||= USED_BY.some((name) => hasAttribute(element, name));
    for (const name of CALLED_BY) {
      const value = attributeOf(element, name);
      if (value) compare(value, 1);
    }
    const classes = attributeOf(element, "class");
    if (classes && wanted.trace.test(classes.slice(0, COMPARED_CHARS_MAX))) {
      for (const each of classes.slice(0, COMPARED_CHARS_MAX).split(/\s+/)) compare(each, 0.85);
    }
  }
  if (tag === "input" || tag === "select" || tag === "textarea") {
    for (const label of element.labels ?? []) compare(textIn(label), 1);
    if (tag === "input" && ["submit", "button", "reset"].includes(element.type)) compare(element.value, 1);
  } else if (isUsed || firstChildOf(element) === null) compare(textIn(element), 1);
  return isUsed ? best : 0.9 * best;
}

function survey(wanted) {
  // The likest by what is cheap to read, as far as the time allows, and the hosts of what cannot be read.
  const end = performance.now() + SURVEY_MS;
  const likest = [], closed = [];
  let seen = 0, least = ALIKE_MIN;
  for (const element of everyElement(document)) {
    if (++seen > SURVEYED_MAX || (seen % 16 === 0 && performance.now() > end)) break;
    if (closed.length < CLOSE_LOOKS_MAX && isClosed(element)) closed.push(element);
    const like = likeness(element, wanted);
    if (like < least || (likest.length === CLOSE_LOOKS_MAX && like === least)) continue;
    likest.push({element, like});
    if (likest.length <= CLOSE_LOOKS_MAX) continue;
    likest.sort((one, other) => other.like - one.like);
    likest.pop();
    least = likest.at(-1).like;
  }
  return {likest, closed};
}

function isClosed(element) {
  // A custom element in which nothing can be seen may keep its content to itself.
  return tagOf(element).includes("-") && element.shadowRoot === null && firstChildOf(element) === null &&
    textIn(element).trim() === "";
}

function nearestTo(wanted, {likest} = survey(wanted)) {
  const judged = likest.map(({element, like}) => {
    const role = roleOf(element);
    const isShown = isVisible(element);
    const bonus = wanted.role === null ? 0 : role === wanted.role ? 0.1 : -0.05;
    return {element, score: like + bonus - (isShown ? 0 : 0.1)};
  });
  judged.sort((one, other) => other.score - one.score);
  const kept = [];
  for (const each of judged) {
    // A thing and what it consists of are one thing.
    const isPart = kept.some(({element}) => isInside(each.element, element) || isInside(element, each.element));
    if (!isPart) kept.push(each);
    if (kept.length === NEAREST_MAX) break;
  }
  if (kept.length === 0 && wanted.role === "iframe") {
    // Whoever wants a frame is helped by those there are.
    kept.push(...framesHere().slice(0, NEAREST_MAX).map((element) => ({element, score: ALIKE_MIN})));
  }
  return kept.map(({element, score}) => ({...candidateOf(element), score}));
}

// --- How it is told ---------------------------------------------------------------------------------------------

function thing(element) {
  // How a snapshot calls it, and the ref to use it by.
  const role = roleOf(element);
  const name = nameOf(element, role ?? "button");
  return {ref: refOf(element), role: shorten(role ?? "generic", ROLE_MAX), name: shorten(name, NAME_MAX)};
}

function candidateOf(element) {
  const told = {...thing(element), element: describe(element)};
  if (isVisible(element)) return told;
  const {hiddenBecause, opener} = hiding(element);
  return {...told, hiddenBecause, ...(opener && {opener})};
}

function framesHere() {
  // The browser counts them, so that a large page without any is not searched for them.
  if (globalThis.length === 0) return [];
  return Array.from(queryAll(document, "iframe, frame")).slice(0, FRAMES_SEEN_MAX);
}

function selectorOfFrame(frame) {
  for (const name of ["id", "name", "title"]) {
    const value = attributeOf(frame, name);
    if (!value || value.length > NAME_MAX) continue;
    const css = name === "id" ? `iframe#${CSS.escape(value)}` : `iframe[${name}="${CSS.escape(value)}"]`;
    if (queryAll(document, css).length === 1) return css;
  }
  return framesHere().length === 1 ? tagOf(frame) : `ref=${refOf(frame)}`;
}

function missing(order, part) {
  // Nothing fits: what does nearly, which frames it may be in, and what else is known.
  const frames = framesHere().filter(isVisible);
  const wanted = wantedOf(order.parts[part]), seen = survey(wanted);
  const host = seen.closed.find(isVisible);
  return {
    candidates: nearestTo(wanted, seen),
    frames: frames.slice(0, FRAMES_TOLD_MAX).map((each) => ({ref: refOf(each), selector: selectorOfFrame(each)})),
    isProse: isProse(order.parts[part]) || null,
    isLoading: theReadyState() === "loading" || null,
    closedRoot: host === undefined ? null : describe(host),
  };
}

function isProse(part) {
  // CSS that is only words, and not all of them tags: a text, or a ref, in the place of a selector.
  if (part.by !== "css" || part.body.length > 2 * NAME_MAX || !/^[\p{L}\p{N}\s'’-]+$/u.test(part.body)) return false;
  return part.body.split(/\s+/).some((word) => !/^[a-z][a-z0-9-]*$/i.test(word) || !isTag(word));
}

function entered() {
  // The frame that is held while its document is looked at: how it is told, when that comes to nothing.
  const frame = heldFrame();
  return frame === null ? null : {ref: refOf(frame), element: describe(frame)};
}

function replaced(stale) {
  // A ref whose element has left: what is like it now, where it is known what it was.
  return {...stale, candidates: nearestTo(wantedOf({...stale, by: "ref"}))};
}

function nearest(order) {
  // In a frame: whether these parts find something here, and what is near if they do not.
  const found = resolve(order.parts);
  if (found.elements?.length) return {isHere: true, candidates: [candidateOf(preferVisible(found.elements)[0])]};
  return {isHere: false, candidates: "part" in found ? nearestTo(wantedOf(order.parts[found.part])) : []};
}

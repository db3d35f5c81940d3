// Waits until an element can be acted upon, and says which condition it still lacks.
//
// In order: attached, visible, enabled, editable, stable (its box is the same one animation frame later) and
// receives_events (a press at its middle would reach it). A wait is cut into slices: one that has run out is answered
// with the condition that failed last, so that whoever gives up knows why, and nothing of ours goes on for long in a
// page after its caller has left. Besides scrolling, nothing here changes the page.

// How long a frame may take: where pages are drawn, and where they are hidden and none will come.
const FRAME_MAX_MS = 1_000;
const HIDDEN_FRAME_MS = 50;
// How far the clock of animations has to go on between two measures, and how many frames that may take.
const MOVE_MIN_MS = 5;
const STILL_FRAMES_MAX = 10;
// Pauses between looks grow to this.
const PAUSE_MAX_MS = 100;
// How long a guard that sees no press stays: the press follows the answer at once, or its caller is gone.
const GUARD_MAX_MS = 1_000;
const CANDIDATES_MAX = 5;
// What a press on a part of it is meant for.
const PRESSABLE = "button, a, [role=button], [role=link], [role=checkbox], [role=radio], [role=tab], [role=menuitem]";
// Where a second, third and fourth try puts the element in its scroller, to get it out from under a fixed header.
const ALIGNMENTS = ["center", "end", "start", "nearest"];

// The element that was located last, for the step that follows.
let held = null;
let guard = null;

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const nextFrame = () => new Promise((done) => {
  const timer = setTimeout(done, isHiddenPage() ? HIDDEN_FRAME_MS : FRAME_MAX_MS);
  requestAnimationFrame(() => { clearTimeout(timer); done(); });
});

async function nextMove() {
  // The next frame in which animations have moved on. Asked outside of a frame, their clock is ahead of the frame that
  // comes next when the machine is busy; it then stands still, and so does what they move.
  const clock = theTimeline(), before = clock.currentTime;
  for (let frames = 0; frames < STILL_FRAMES_MAX; frames++) {
    await nextFrame();
    if (clock.currentTime - before >= MOVE_MIN_MS || theAnimations().length === 0) return;
  }
}

function isVisible(element) {
  // Without a box of its own it is seen by what is in it.
  if (getComputedStyle(element).display === "contents") return Array.from(childrenOf(element)).some(isVisible);
  if (!isDrawn(element, {visibilityProperty: true})) return false;
  const box = boundsOf(element);
  return box.width > 0 && box.height > 0;
}

function isEnabled(element) {
  for (let each = element; each !== null; each = parentOf(each)) {
    if (matches(each, ":disabled") && (each === element || matches(each, "button, select, optgroup"))) return false;
    const given = attributeOf(each, "aria-disabled");
    if (given === "true") return false;
    if (given === "false") return true;
  }
  return true;
}

function isEditable(element) {
  if (element instanceof HTMLInputElement || element instanceof HTMLTextAreaElement) return !element.readOnly;
  return attributeOf(element, "aria-readonly") !== "true";
}

function boxOf(element) {
  // The first piece that has an area: the middle of a link over two lines may lie on neither.
  for (const box of piecesOf(element)) if (box.width >= 1 && box.height >= 1) return box;
  if (getComputedStyle(element).display === "contents") {
    for (const child of childrenOf(element)) {
      const box = boxOf(child);
      if (box) return box;
    }
  }
  return boundsOf(element);
}

function middleOf(element) {
  // The middle of what is inside the viewport; null when nothing is.
  const box = boxOf(element);
  const left = Math.max(0, box.left), right = Math.min(innerWidth, box.right);
  const top = Math.max(0, box.top), bottom = Math.min(innerHeight, box.bottom);
  return right - left < 0.5 || bottom - top < 0.5 ? null : {x: (left + right) / 2, y: (top + bottom) / 2};
}

function elementAt(x, y) {
  let hit = Document.prototype.elementFromPoint.call(document, x, y);
  while (hit !== null && hit.shadowRoot instanceof ShadowRoot) {
    const root = hit.shadowRoot;
    // Text in a slot is said to be the host's own. What it is drawn upon is the first thing of the root below it.
    const inner = root.elementsFromPoint(x, y).find((each) => rootOf(each) === root);
    if (inner === undefined) break;
    hit = inner;
  }
  return hit;
}

function reaches(hit, element) {
  // Whether a press on `hit` is a press on the element: inside it, inside the button it is part of, or on its label.
  if (hit === null) return false;
  if (isInside(hit, element)) return true;
  for (let each = parentOf(element); each !== null; each = parentOf(each)) {
    if (matches(each, PRESSABLE)) return isInside(hit, each);
  }
  for (let each = hit; each !== null; each = parentOf(each)) {
    if (each instanceof HTMLLabelElement) return each.control === element;
  }
  return false;
}

const unmet = (condition, element, more) => ({unmet: condition, element: element ? describe(element) : null, ...more});

async function look(order, round) {
  const found = resolve(order.parts);
  if ("stale" in found) return {refused: replaced(found)};
  if ("invalid" in found) return {refused: found};
  const elements = preferVisible(found.elements);
  if (elements.length === 0) return unmet("attached", null, {part: found.part});
  if (elements.length > 1 && (order.isStrict || "frame" in found)) {
    const candidates = elements.slice(0, CANDIDATES_MAX).map(candidateOf);
    return {refused: {count: elements.length, candidates}};
  }
  held = elements[0];
  if ("frame" in found) return {done: {frame: found.frame}};
  if (order.isField) held = order.needs.includes("stable") ? shownOf(fieldOf(held)) : fieldOf(held);
  const element = held, needs = order.needs;
  if (needs.includes("visible") && !isVisible(element)) return unmet("visible", element);
  const used = order.isField ? fieldOf(element) : element;
  if (needs.includes("enabled") && !isEnabled(used)) return unmet("enabled", element);
  if (needs.includes("editable") && !isEditable(element)) return unmet("editable", element);
  if (!needs.includes("stable") && order.then) return stepNow(element, order.then);
  if (!needs.includes("stable")) return {done: {element: describe(element)}};
  const early = middleOf(element);
  if (round > 0 || early === null || !reaches(elementAt(early.x, early.y), element)) reveal(element, round);
  const before = boundsOf(element), wasAboutToMove = isAboutToMove(element);
  await nextMove();
  if (!isAttached(element)) return replacedOf(order);
  const after = boundsOf(element);
  if (["x", "y", "width", "height"].some((side) => before[side] !== after[side])) return unmet("stable", element);
  if (wasAboutToMove || isAboutToMove(element)) return unmet("stable", element);
  const point = middleOf(element);
  if (!needs.includes("receives_events")) return {done: {element: describe(element), ...point}};
  if (point === null) return unmet("receives_events", element, {reason: "outside of the viewport"});
  const hit = elementAt(point.x, point.y);
  if (!reaches(hit, element)) {
    const why = isInert(element) ? {reason: "inert: the page has switched this part off"} : coverOf(hit);
    return unmet("receives_events", element, why);
  }
  guardPress(element, order);
  return {done: {element: describe(element), ...point}};
}

function successorOf(order) {
  // What has taken the place of an element that the page drew anew; null when there is nothing, or it is not clear.
  const found = resolve(order.parts);
  const elements = preferVisible(found.elements ?? []);
  if (elements.length === 0 || (elements.length > 1 && order.isStrict)) return null;
  return order.isField ? shownOf(fieldOf(elements[0])) : elements[0];
}

function replacedOf(order) {
  // It has gone while it was looked at; a page that draws it anew all the time has it, but not for long enough.
  const successor = successorOf(order);
  if (successor === null) return unmet("attached");
  return unmet("stable", successor, {reason: "the page keeps replacing it"});
}

function isInert(element) {
  for (let each = element; each !== null; each = parentOf(each)) if (hasAttribute(each, "inert")) return true;
  return false;
}

function isAboutToMove(element) {
  // An animation that was begun but has not been drawn yet moves nothing, for a frame or two, nor does its first frame.
  const isPending = ({pending, effect}) => pending && effect?.target && isInside(element, effect.target);
  return theAnimations().some(isPending);
}

function reveal(element, round) {
  // Instantly, whatever the page's style says: an element that is still scrolling would not be stable.
  const block = ALIGNMENTS[round % ALIGNMENTS.length];
  bringIntoView(element, {block, inline: block === "nearest" ? "nearest" : "center", behavior: "instant"});
}

async function locate(order) {
  const end = performance.now() + order.sliceMs;
  for (let round = 0; ; round++) {
    const started = performance.now();
    const outcome = await look(order, round + order.round);
    if (!("unmet" in outcome)) return outcome;
    const now = performance.now();
    // A page in which looking is slow is looked at less often.
    const wait = Math.min(PAUSE_MAX_MS, 10 * 2 ** round) + (now - started);
    if (now + wait > end) return {...explain(outcome, order), round: round + order.round + 1};
    await pause(wait);
  }
}

function placeIn(frame, point) {
  // Whatever turns or stretches it, the middle of the frame is the middle of the box around it; from there on a step
  // in the frame's document is one that all transforms around it have been applied to.
  const box = boundsOf(frame), style = getComputedStyle(frame);
  const inset = (side) => parseFloat(style[`border${side}Width`]) + parseFloat(style[`padding${side}`]);
  const x = inset("Left") + point.x - frame.offsetWidth / 2, y = inset("Top") + point.y - frame.offsetHeight / 2;
  const {a, b, c, d} = transformOf(frame);
  return {x: box.left + box.width / 2 + a * x + c * y, y: box.top + box.height / 2 + b * x + d * y};
}

function transformOf(element) {
  // All that is applied to it, but for where it is.
  const zoom = element.currentCSSZoom ?? 1;
  let all = new DOMMatrix([zoom, 0, 0, zoom, 0, 0]);
  for (let each = element; each !== null; each = parentOf(each)) {
    const {transform, rotate, scale} = getComputedStyle(each);
    if (transform !== "none") all = new DOMMatrix(transform).multiply(all);
    if (scale !== "none") all = new DOMMatrix(`scale(${scale.split(" ").slice(0, 2)})`).multiply(all);
    if (/^[\d.e+-]+deg$/.test(rotate)) all = new DOMMatrix(`rotate(${rotate})`).multiply(all);
  }
  return all;
}

function through(point) {
  // From the coordinates of the held frame's document to those of the document it stands in.
  const frame = held;
  if (frame === null || !isAttached(frame)) return unmet("attached");
  const place = () => placeIn(frame, point);
  let at = place();
  if (at.x < 0 || at.y < 0 || at.x >= innerWidth || at.y >= innerHeight) {
    scrollBy({left: at.x - innerWidth / 2, top: at.y - innerHeight / 2, behavior: "instant"});
    at = place();
    if (at.x < 0 || at.y < 0 || at.x >= innerWidth || at.y >= innerHeight) reveal(frame, 0);
    at = place();
  }
  const hit = elementAt(at.x, at.y);
  if (hit !== frame) return unmet("receives_events", frame, coverOf(hit));
  return {done: at};
}

const MOVE_EVENTS = ["pointermove", "pointerover", "mousemove", "mouseover"];
const PRESS_EVENTS = [
  "pointerdown", "mousedown", "pointerup", "mouseup", "click", "auxclick", "dblclick", "contextmenu",
];

function guardPress(element, order) {
  // Between the look and the press the page may put something else there. A press that would land on it is swallowed.
  // Of an element that was drawn anew meanwhile, the new one is as good.
  releaseGuard();
  const current = {isReached: false, isOver: false, isMissed: false, coveredBy: null, timer: 0};
  const notice = (event) => {
    if (!event.isTrusted) return;
    current.isReached = true;
    current.isOver ||= reaches(event.composedPath()[0], element);
  };
  const judge = (event) => {
    if (!event.isTrusted) return;
    if (event.type === "pointerdown") {
      const hit = event.composedPath()[0];
      const target = isAttached(element) ? element : successorOf(order);
      current.isMissed = hit instanceof Element && (target === null || !reaches(hit, target));
      current.coveredBy = current.isMissed ? describe(hit) : null;
    }
    if (!current.isMissed) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  };
  for (const type of MOVE_EVENTS) addEventListener(type, notice, {capture: true, passive: true});
  for (const type of PRESS_EVENTS) addEventListener(type, judge, {capture: true, passive: false});
  current.release = () => {
    clearTimeout(current.timer);
    for (const type of MOVE_EVENTS) removeEventListener(type, notice, {capture: true});
    for (const type of PRESS_EVENTS) removeEventListener(type, judge, {capture: true});
  };
  current.timer = setTimeout(releaseGuard, GUARD_MAX_MS);
  guard = current;
}

async function isReached() {
  // Whether the mouse has come to this document since the guard was set; told a frame later, if not at once.
  if (guard === null) return false;
  clearTimeout(guard.timer);
  guard.timer = setTimeout(releaseGuard, GUARD_MAX_MS);
  if (!guard.isReached) await nextFrame();
  return guard !== null && guard.isReached;
}

function releaseGuard() {
  // Whether the press was swallowed, and what was in its way; and whether the mouse came, but never to the element.
  const current = guard;
  guard = null;
  if (current === null) return {isMissed: false, isPassed: false};
  current.release();
  const {isMissed, coveredBy, isReached, isOver} = current;
  return {isMissed, coveredBy, isPassed: isReached && !isOver};
}

function heldFrame() {
  return held !== null && isAttached(held) && isFrame(held) ? held : null;
}

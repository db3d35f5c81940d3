// Changes form fields, and moves the focus and the scroll position: the steps that follow when an element is ready.
//
// Each works on the held element and answers {done: ...}, or {failed: why} with the page left as it was.

// Values that are set, because nobody types them; a browser's own picker fires the same two events.
const SET_TYPES = new Set(["color", "date", "datetime-local", "month", "range", "time", "week"]);
// How many options an error lists.
const OPTIONS_TOLD_MAX = 20;
// Inputs that have no value to be filled in, and what is meant for them instead.
const NOT_FILLED = {
  button: "click", checkbox: "check", file: "upload", hidden: "evaluate", image: "click", radio: "check",
  reset: "click", submit: "click",
};

const CHECKED_KINDS = new Set([
  "checkbox", "menuitemcheckbox", "menuitemradio", "option", "radio", "switch", "treeitem",
]);

// A text of more lines than this is not left to the browser alone.
const LINES_MAX = 100;
// How long a page may take to be told of a selection.
const SELECTION_MAX_MS = 50;

function fieldOf(element) {
  // What a label stands for, also when a part of its text was named.
  if (matches(element, "input, textarea, select, button") || isEditableRegion(element)) return element;
  for (let each = element; each !== null; each = parentOf(each)) {
    if (each instanceof HTMLLabelElement) return each.control ?? element;
  }
  return element;
}

function shownOf(field) {
  // Where a person presses a box that is drawn by its label.
  return isVisible(field) ? field : Array.from(field.labels ?? []).find(isVisible) ?? field;
}

const isEditableRegion = (element) => element instanceof HTMLElement && isContentEditable(element);
const isTextField = (element) => element instanceof HTMLTextAreaElement || element instanceof HTMLInputElement;

function changeOf(element, ...types) {
  for (const type of types) dispatch(element, new Event(type, {bubbles: true, composed: type === "input"}));
}

function focusedElement() {
  // The innermost that has it, through open shadow roots; null when nothing has.
  let active = theFocused();
  while (active?.shadowRoot instanceof ShadowRoot && active.shadowRoot.activeElement) {
    active = active.shadowRoot.activeElement;
  }
  return active;
}

function hasFocus(element) {
  const active = focusedElement();
  return active !== null && active === editorOf(element);
}

function editorOf(element) {
  // What takes the focus for it: a field itself; of a part of an editable region the whole region.
  if (isTextField(element) || !isEditableRegion(element)) return element;
  let editor = element;
  for (let each = parentOf(element); each !== null && isEditableRegion(each); each = parentOf(each)) editor = each;
  return editor;
}

const STEPS = {
  focus(element) {
    return focusOn(element) ?? {done: null};
  },

  // The caret goes behind what is there already.
  focusEnd(element) {
    const refused = focusOn(element);
    if (refused) return refused;
    if (isTextField(element)) {
      try {
        element.setSelectionRange(element.value.length, element.value.length);
      } catch {
        // Fields for numbers and addresses let no script set their caret.
        return {done: "press End"};
      }
    } else if (isEditableRegion(element)) {
      return selectIn(() => {
        getSelection().selectAllChildren(element);
        getSelection().collapseToEnd();
      }, {done: null});
    }
    return {done: null};
  },

  // Answers with the text that is left to insert; null is all of it.
  fill(element, value) {
    if (element instanceof HTMLSelectElement) return {failed: "it is a select; use the action `select`"};
    if (element instanceof HTMLInputElement) {
      if (Object.hasOwn(NOT_FILLED, element.type)) {
        return {failed: `it is an input of type ${element.type}; use the action \`${NOT_FILLED[element.type]}\``};
      }
      if (SET_TYPES.has(element.type)) return setValue(element, value.trim());
      if (element.type === "number" && value.trim() !== "" && Number.isNaN(Number(value))) {
        return {failed: `'${shorten(value, 60)}' is not a number`};
      }
    } else if (!(element instanceof HTMLTextAreaElement) && !isEditableRegion(element)) {
      return {failed: "it is not a field: only input, textarea and contenteditable elements can be filled"};
    }
    const refused = focusOn(element);
    if (refused) return refused;
    guardInput(element);
    if (!isTextField(element)) return selectIn(() => getSelection().selectAllChildren(element), {done: {text: null}});
    if (element instanceof HTMLTextAreaElement && value.split("\n", LINES_MAX + 1).length > LINES_MAX) {
      return {done: {text: fillLines(element, value)}};
    }
    element.select();
    return {done: {text: element.type === "number" ? value.trim() : null}};
  },

  // Changes nothing: whether all options are there to be selected. They may come late.
  hasOptions(element, wanted) {
    if (!(element instanceof HTMLSelectElement)) return {failed: "it is not a select"};
    if (wanted.length > 1 && !element.multiple) return {failed: "it takes one option only"};
    const options = Array.from(element.options);
    for (const want of wanted) {
      const option = findOption(options, want);
      if (option === undefined) {
        return {unmet: "option", wanted: want, options: options.slice(0, OPTIONS_TOLD_MAX).map(brief)};
      }
      if (!isEnabled(option)) return {unmet: "option_enabled", wanted: want};
    }
    return {done: null};
  },

  select(element, wanted) {
    const lack = STEPS.hasOptions(element, wanted);
    if (lack.done === undefined) return lack;
    const options = Array.from(element.options);
    const chosen = wanted.map((want) => findOption(options, want));
    const isChanged = options.some((option) => option.selected !== chosen.includes(option));
    focusOn(element);
    if (!element.multiple && chosen.length === 0) element.selectedIndex = -1;
    for (const option of options) if (option.selected !== chosen.includes(option)) option.selected = !option.selected;
    if (isChanged) changeOf(element, "input", "change");
    return {done: {values: Array.from(element.selectedOptions, (option) => option.value), isChanged}};
  },

  checked(element) {
    const kind = element instanceof HTMLInputElement ? element.type : roleOf(element);
    if (!CHECKED_KINDS.has(kind)) return {failed: "it is neither a checkbox, nor a radio button, nor a switch"};
    // Natively a box may be shown as neither, but it is one of the two all the same.
    const isChecked = element instanceof HTMLInputElement ? element.checked : stateOf(element, "checked") === "true";
    return {done: {isChecked, isRadio: kind.endsWith("radio")}};
  },

  scrollBy(element, {x, y}) {
    // What a turn of the wheel there would move.
    let moved = element;
    while (moved !== null && moved !== theScroller() && !scrolls(moved, x, y)) moved = parentOf(moved);
    moved ??= theScroller() ?? theRoot();
    moveBy(moved, {left: x, top: y, behavior: "instant"});
    return {done: {x: scrollLeftOf(moved), y: scrollTopOf(moved)}};
  },

  scrollTo(element) {
    bringIntoView(element, {block: "center", inline: "center", behavior: "instant"});
    const box = boundsOf(element);
    return {done: {x: box.x, y: box.y}};
  },

  // Its size, and how far the point that was located is from its corner.
  box(element) {
    const box = boundsOf(element), middle = middleOf(element);
    if (middle === null) return unmet("visible", element);
    return {done: {width: box.width, height: box.height, middleX: middle.x - box.x, middleY: middle.y - box.y}};
  },

  text(element, charsMax) {
    // Only HTML has it.
    return atMost(charsMax, (element instanceof HTMLElement ? innerTextOf(element) : textContentOf(element)) ?? "");
  },

  html(element, charsMax) {
    return atMost(charsMax, markupOf(element));
  },
};

function focusOn(element) {
  // Null, or why the element does not have the focus. It is given also to what has it already, because the focus may
  // be in another document. A page that answers by replacing the element is looked at again.
  takeFocus(editorOf(element));
  if (!isAttached(element)) return unmet("attached");
  return hasFocus(element) ? null : {failed: "it does not take the focus"};
}

async function selectIn(select, answer) {
  // Editors that keep a selection of their own hear of this one some time later; text that came before would go where
  // theirs is. The time is for a selection that was the same already, of which nobody hears.
  let heard;
  const told = new Promise((done) => { heard = done; });
  addEventListener("selectionchange", heard, {capture: true, once: true});
  select();
  await Promise.race([told, pause(SELECTION_MAX_MS)]);
  removeEventListener("selectionchange", heard, {capture: true});
  return answer;
}

function fillLines(element, value) {
  // A browser takes a text in line by line, each slower than the one before: thousands would take minutes. So all but
  // the last character is put there, and that one, which is left to insert, is the real input that a page hears of.
  const last = /[^]$/u.exec(value)[0];
  const head = value.slice(0, -last.length);
  element.value = element.maxLength < 0 ? head : head.slice(0, element.maxLength);
  element.setSelectionRange(element.value.length, element.value.length);
  return last;
}

// What text and the Delete key fire, in this order.
const INPUT_EVENTS = ["keydown", "beforeinput", "input", "keyup"];
let inputGuard = null;

function guardInput(element) {
  // Until the text comes the page may move the focus. Text that would then go elsewhere is swallowed.
  releaseInput();
  const current = {element, isHeard: false, wentTo: null};
  const judge = (event) => {
    const at = event.composedPath()[0];
    if (current.isHeard || !event.isTrusted || !(at instanceof Element)) return;
    if (isInside(at, element) || at === editorOf(element)) {
      current.isHeard = true;
      return;
    }
    current.wentTo = describe(at);
    event.preventDefault();
    event.stopImmediatePropagation();
  };
  for (const type of INPUT_EVENTS) addEventListener(type, judge, {capture: true, passive: false});
  current.release = () => {
    clearTimeout(current.timer);
    for (const type of INPUT_EVENTS) removeEventListener(type, judge, {capture: true});
  };
  current.timer = setTimeout(releaseInput, GUARD_MAX_MS);
  inputGuard = current;
}

function releaseInput() {
  // Whether the text came to the field. A page that hides the events of a field that has the focus is believed.
  const current = inputGuard;
  inputGuard = null;
  if (current === null) return {isTaken: true};
  current.release();
  const {element, isHeard, wentTo} = current;
  return {isTaken: isHeard || (wentTo === null && isAttached(element) && hasFocus(element)), wentTo};
}

function setValue(element, value) {
  // Tried on a copy, so that a value it does not take leaves no trace.
  const copy = element.cloneNode();
  copy.value = value;
  const plain = element.type === "range" ? Number : element.type === "color" ? (text) => text.toLowerCase() : String;
  if (plain(copy.value) !== plain(value)) {
    const instead = copy.value ? `, it would make it '${copy.value}'` : "";
    return {failed: `a field of type ${element.type} does not take '${shorten(value, 60)}'${instead}`};
  }
  takeFocus(element);
  if (!isAttached(element)) return unmet("attached");
  element.value = value;
  changeOf(element, "input", "change");
  return {done: null};
}

function findOption(options, want) {
  if (typeof want === "number") return options[want];
  const text = squeeze(want);
  return options.find((option) => option.value === want) ?? options.find((option) => squeeze(option.label) === text);
}

const inBrief = (text) => shorten(squeeze(text.slice(0, TEXT_MAX)), 60);
const brief = (option) => ({value: inBrief(option.value), label: inBrief(option.label)});

function scrolls(element, x, y) {
  const style = getComputedStyle(element);
  const can = (overflow, size, shown) => ["auto", "scroll"].includes(overflow) && size > shown;
  return (y !== 0 && can(style.overflowY, scrollHeightOf(element), clientHeightOf(element))) ||
    (x !== 0 && can(style.overflowX, scrollWidthOf(element), clientWidthOf(element)));
}

async function stepNow(element, {name, argument}) {
  // As part of a look: nothing can have changed since.
  const line = describe(element);
  const {done, ...other} = await STEPS[name](element, argument);
  return done === undefined ? {element: line, ...other} : {done: {element: line, answer: done}};
}

function step({name, argument}) {
  if (held === null || !isAttached(held)) return unmet("attached");
  return STEPS[name](held, argument);
}

function scrollPage(by) {
  // A document that is only just coming has nothing in it.
  if (!theRoot()) return unmet("attached");
  return STEPS.scrollBy(elementAt(innerWidth / 2, innerHeight / 2), by);
}

// As much of a page's title as anybody reads.
const TITLE_MAX = 1_000;

// Not even sent when it is longer: a browser is busy with a large answer, and deaf to everybody, for seconds.
const atMost = (charsMax, text) => text.length > charsMax ? {long: text.length} : {done: text};

function readPage({name, charsMax}) {
  // Documents that are not HTML have no body, and an empty one nothing at all.
  const root = name === "text" ? theBody() || theRoot() : theRoot();
  if (!root) return {done: ""};
  const {doctype} = document;
  const head = name === "html" && doctype ? `<!DOCTYPE ${doctype.name}>\n` : "";
  const read = STEPS[name](root, charsMax);
  return "done" in read ? {done: head + read.done} : read;
}

function addressOf() {
  return location.href;
}

function describePage() {
  // The status is 0 where there is none, as for about:blank.
  const status = performance.getEntriesByType("navigation")[0]?.responseStatus || null;
  return {url: location.href, title: shorten(theTitle(), TITLE_MAX), status};
}

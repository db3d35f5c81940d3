// Changes form fields, and moves the focus and the scroll position: the steps that follow when an element is ready.
//
// Each works on the held element and answers {done: ...}, or {failed: why} with the page left as it was.

// Values that are set, because nobody types them; a browser's own picker fires the same two events.
const SET_TYPES = new Set(["color", "date", "datetime-local", "month", "range", "time", "week"]);
// Inputs that have no value to be filled in, and what is meant for them instead.
const NOT_FILLED = {
  button: "click", checkbox: "check", file: "upload", hidden: "evaluate", image: "click", radio: "check",
  reset: "click", submit: "click",
};

function fieldOf(element) {
  // What a label stands for, also when a part of its text was named.
  if (matches(element, "input, textarea, select, button") || isEditableRegion(element)) return element;
  for (let each = element; each !== null; each = parentOf(each)) {
    if (each instanceof HTMLLabelElement) return each.control ?? element;
  }
  return element;
}

const isEditableRegion = (element) => element instanceof HTMLElement && element.isContentEditable;
const isTextField = (element) => element instanceof HTMLTextAreaElement || element instanceof HTMLInputElement;

function changeOf(element, ...types) {
  for (const type of types) element.dispatchEvent(new Event(type, {bubbles: true, composed: type === "input"}));
}

function hasFocus(element) {
  let active = document.activeElement;
  while (active?.shadowRoot instanceof ShadowRoot && active.shadowRoot.activeElement) {
    active = active.shadowRoot.activeElement;
  }
  if (active === null || active === element) return active === element;
  // Inside an editable region it is the region that has the focus.
  return isEditableRegion(element) && isEditableRegion(active) && isInside(element, active);
}

const STEPS = {
  focus(element) {
    focusOn(element);
    return hasFocus(element) ? {done: null} : {failed: "it does not take the focus"};
  },

  // The caret goes behind what is there already.
  focusEnd(element) {
    focusOn(element);
    if (!hasFocus(element)) return {failed: "it does not take the focus"};
    if (isTextField(element)) {
      try {
        element.setSelectionRange(element.value.length, element.value.length);
      } catch {
        // Fields for numbers and addresses let no script set their caret.
        return {done: "press End"};
      }
    } else if (isEditableRegion(element)) {
      getSelection().selectAllChildren(element);
      getSelection().collapseToEnd();
    }
    return {done: null};
  },

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
    focusOn(element);
    if (!hasFocus(element)) return {failed: "it does not take the focus"};
    if (isTextField(element)) element.select();
    else getSelection().selectAllChildren(element);
    return {done: "insert"};
  },

  // What was inserted has fired `input`; listeners for `change` would otherwise wait until the focus moves on.
  filled(element) {
    if (isTextField(element)) changeOf(element, "change");
    return {done: null};
  },

  select(element, wanted) {
    if (!(element instanceof HTMLSelectElement)) return {failed: "it is not a select"};
    if (wanted.length > 1 && !element.multiple) return {failed: "it takes one option only"};
    const options = Array.from(element.options);
    const chosen = [];
    for (const want of wanted) {
      const option = findOption(options, want);
      if (option === undefined) return {unmet: "option", wanted: want, options: options.slice(0, 50).map(brief)};
      if (!isEnabled(option)) return {unmet: "option_enabled", wanted: want};
      chosen.push(option);
    }
    const isChanged = options.some((option) => option.selected !== chosen.includes(option));
    focusOn(element);
    if (!element.multiple && chosen.length === 0) element.selectedIndex = -1;
    for (const option of options) if (option.selected !== chosen.includes(option)) option.selected = !option.selected;
    if (isChanged) changeOf(element, "input", "change");
    return {done: Array.from(element.selectedOptions, (option) => option.value)};
  },

  checked(element) {
    const kind = element instanceof HTMLInputElement ? element.type : roleOf(element);
    if (!["checkbox", "radio", "switch", "menuitemcheckbox", "menuitemradio"].includes(kind)) {
      return {failed: "it is neither a checkbox, nor a radio button, nor a switch"};
    }
    return {done: {isChecked: String(stateOf(element, "checked")) === "true", isRadio: kind.endsWith("radio")}};
  },

  scrollBy(element, {x, y}) {
    // What a turn of the wheel there would move.
    let moved = element;
    while (moved !== null && moved !== document.scrollingElement && !scrolls(moved, x, y)) moved = parentOf(moved);
    moved ??= document.scrollingElement ?? document.documentElement;
    moved.scrollBy({left: x, top: y, behavior: "instant"});
    return {done: {x: moved.scrollLeft, y: moved.scrollTop}};
  },

  scrollTo(element) {
    element.scrollIntoView({block: "center", inline: "center", behavior: "instant"});
    const box = element.getBoundingClientRect();
    return {done: {x: box.x, y: box.y}};
  },

  // Its size, and how far the point that was located is from its corner.
  box(element) {
    const box = element.getBoundingClientRect(), middle = middleOf(element);
    if (middle === null) return unmet("visible", element);
    return {done: {width: box.width, height: box.height, middleX: middle.x - box.x, middleY: middle.y - box.y}};
  },

  text(element) {
    return {done: element.innerText === undefined ? textContentOf(element) : element.innerText};
  },

  html(element) {
    return {done: element.outerHTML};
  },
};

function focusOn(element) {
  // Only a document that has the focus shows it; a frame does not get it from focusing something inside.
  if (document.activeElement !== element) element.focus({preventScroll: false});
}

function setValue(element, value) {
  const before = element.value;
  element.value = value;
  const isTaken = element.type === "range" ? Number(element.value) === Number(value) : element.value === value;
  if (!isTaken) {
    const given = element.value;
    element.value = before;
    const instead = given ? `, it would make it '${given}'` : "";
    return {failed: `a field of type ${element.type} does not take '${shorten(value, 60)}'${instead}`};
  }
  element.focus();
  changeOf(element, "input", "change");
  return {done: null};
}

function findOption(options, want) {
  if (typeof want === "number") return options[want];
  const text = squeeze(want);
  return options.find((option) => option.value === want) ?? options.find((option) => squeeze(option.label) === text);
}

const brief = (option) => ({value: shorten(option.value), label: shorten(squeeze(option.label))});

function scrolls(element, x, y) {
  const style = getComputedStyle(element);
  const can = (overflow, size, shown) => ["auto", "scroll"].includes(overflow) && size > shown;
  return (y !== 0 && can(style.overflowY, element.scrollHeight, element.clientHeight)) ||
    (x !== 0 && can(style.overflowX, element.scrollWidth, element.clientWidth));
}

function step({name, argument}) {
  if (held === null || !held.isConnected) return unmet("attached");
  return STEPS[name](held, argument);
}

function scrollPage(by) {
  return STEPS.scrollBy(elementAt(innerWidth / 2, innerHeight / 2), by);
}

function readPage({name}) {
  // Documents that are not HTML have no body, and an empty one nothing at all.
  const root = name === "text" ? document.body || document.documentElement : document.documentElement;
  if (!root) return {done: ""};
  const {doctype} = document;
  const head = name === "html" && doctype ? `<!DOCTYPE ${doctype.name}>\n` : "";
  return {done: head + STEPS[name](root).done};
}

function addressOf() {
  return location.href;
}

function describePage() {
  // The status is 0 where there is none, as for about:blank.
  const status = performance.getEntriesByType("navigation")[0]?.responseStatus || null;
  return {url: location.href, title: document.title || "", status};
}

// Tells what keeps an element from being used: what covers it, what hides it, what disables it, what moves it.
//
// And, where the page shows one, the thing to use first: the button that closes a dialog, the tab or summary that opens
// what is closed, the fields that a form still wants. Each search is bounded. Nothing here changes the page.

// How far up and how much of a container is looked at.
const ANCESTORS_MAX = 60;
const WITHIN_MAX = 500;
const FIELDS_MAX = 3;

const OVERLAY_ROLES = new Set([
  "alert", "alertdialog", "banner", "complementary", "contentinfo", "dialog", "listbox", "menu", "navigation", "region",
  "status", "tooltip",
]);
// What a person would press to be rid of it, the surest first.
const CLOSERS = [
  /^(close|dismiss|hide|×|✕|✖|x)\b/i, /^(accept|agree|allow|got it|ok|okay|understood|i understand)\b/i,
  /^(reject|decline|deny|no thanks|not now|skip|later|cancel)\b/i, /^(close|accept|agree|reject|dismiss)\b|×/i,
];

function* ancestorsOf(element) {
  let each = element;
  for (let up = 0; each !== null && up < ANCESTORS_MAX; up++, each = parentOf(each)) yield each;
}

// --- Covered ----------------------------------------------------------------------------------------------------

function coverOf(hit) {
  // What a press would hit instead, the dialog or banner it belongs to, and what closes that.
  if (hit === null) return {coveredBy: null};
  const container = containerOf(hit);
  const cover = thing(hit);
  if (container !== null && container !== hit) cover.inside = thing(container);
  const closer = container === null ? null : closerIn(container);
  if (closer !== null) cover.closer = thing(closer);
  return {coveredBy: describe(hit), cover};
}

function containerOf(hit) {
  // The one with a role says most; what is only fixed on the screen is an overlay too.
  let floating = null;
  for (const each of ancestorsOf(hit)) {
    if (each === theBody() || each === theRoot()) break;
    const role = roleOf(each);
    if (OVERLAY_ROLES.has(role) || matches(each, "dialog, [popover], [aria-modal=true]")) return each;
    if (["fixed", "sticky"].includes(getComputedStyle(each).position)) floating = each;
  }
  return floating;
}

function closerIn(container) {
  const offered = [];
  let seen = 0;
  for (const element of everyElement(container)) {
    if (++seen > WITHIN_MAX) break;
    if (["button", "link"].includes(roleOf(element)) && isVisible(element) && isEnabled(element)) offered.push(element);
  }
  for (const pattern of CLOSERS) {
    const closer = offered.find((each) => pattern.test(nameOf(each)));
    if (closer !== undefined) return closer;
  }
  return null;
}

// --- Not visible ------------------------------------------------------------------------------------------------

function hiding(element) {
  for (const each of ancestorsOf(element)) {
    const because = reasonOf(each, element);
    if (because === null) continue;
    const opener = openerOf(each);
    return {hiddenBecause: because, hiddenBy: each === element ? null : describe(each),
      opener: opener === null ? null : thing(opener)};
  }
  return {hiddenBecause: "empty_box"};
}

function reasonOf(each, element) {
  if (tagOf(each) === "details" && !hasAttribute(each, "open") && each !== element) {
    const summary = summaryOf(each);
    if (summary === null || !isInside(element, summary)) return "closed_details";
  }
  const style = getComputedStyle(each);
  if (style.display === "none") {
    if (tagOf(each) === "dialog") return "closed_dialog";
    return hasAttribute(each, "popover") ? "closed_popover" : "display_none";
  }
  if (style.contentVisibility === "hidden") return "content_visibility";
  // It is inherited: the one that sets it is the last that has it.
  if (each === element && style.visibility !== "visible") return "visibility_hidden";
  return null;
}

const summaryOf = (details) => queryAll(details, ":scope > summary")[0] ?? null;

function openerOf(hidden) {
  // What the page itself says to open it.
  if (tagOf(hidden) === "details") return summaryOf(hidden);
  const root = rootOf(hidden);
  const id = attributeOf(hidden, "id");
  const named = id ? CSS.escape(id) : null;
  const ways = named === null ? [] : [
    `[aria-controls~="${named}"]`, `[popovertarget="${named}"]`, `[commandfor="${named}"]`,
    `[data-target="#${named}"]`, `[data-bs-target="#${named}"]`, `a[href="#${named}"]`,
  ];
  const label = attributeOf(hidden, "aria-labelledby");
  if (label) ways.push(`#${CSS.escape(label.trim().split(/\s+/)[0])}:is(button, a, [role])`);
  for (const css of ways) {
    const found = Array.from(queryAll(root, css)).find(isVisible);
    if (found !== undefined) return found;
  }
  // A closed menu often follows the button that opens it.
  const before = hidden.previousElementSibling;
  const isOpener = before instanceof Element && matches(before, "[aria-expanded], [aria-haspopup]");
  return isOpener && isVisible(before) ? before : null;
}

// --- Disabled, and moving ---------------------------------------------------------------------------------------

function disabling(element) {
  // The element or what is around it; and the fields of its form that are not valid yet.
  let by = null;
  for (const each of ancestorsOf(element)) {
    if (attributeOf(each, "aria-disabled") !== "true" && !hasAttribute(each, "disabled")) continue;
    by = each;
    break;
  }
  const form = Array.from(ancestorsOf(element)).find((each) => tagOf(each) === "form");
  const isInvalid = ":is(input, select, textarea):invalid";
  const invalid = form === undefined ? [] : Array.from(queryAll(form, isInvalid)).slice(0, WITHIN_MAX)
    .filter((each) => each !== element && isVisible(each));
  return {
    disabledBy: by === null || by === element ? null : describe(by),
    invalidFields: invalid.length ? invalid.slice(0, FIELDS_MAX).map(thing) : null,
  };
}

function moving(element) {
  // The animation that moves it, and whether it ends by itself.
  for (const animation of theAnimations()) {
    const target = animation.effect?.target;
    if (!(target instanceof Element) || !isInside(element, target) || animation.playState !== "running") continue;
    const isEndless = animation.effect.getComputedTiming().endTime === Infinity;
    const name = animation.animationName ?? animation.transitionProperty ?? "";
    return {animation: {name: shorten(name, NAME_MAX), isEndless, element: describe(target)}};
  }
  return {};
}

// --- All of it --------------------------------------------------------------------------------------------------

function explain(outcome, order) {
  // Adds to what is unmet at the end of a slice. What covers an element is told by the look itself.
  if (!order.isAdvised) return outcome;
  try {
    switch (outcome.unmet) {
      case "attached": return "part" in outcome ? {...outcome, ...missing(order, outcome.part)} : outcome;
      case "visible": return {...outcome, ...hiding(held)};
      case "enabled": return {...outcome, ...disabling(held)};
      case "stable": return {...outcome, ...moving(held)};
    }
  } catch (error) {
    // A page may be built so that it cannot be read like this; the wait goes on, and says why there is no advice.
    return {...outcome, unexplained: shorten(String(error))};
  }
  return outcome;
}

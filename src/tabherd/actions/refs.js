// Hands out refs and says which element a ref means now.
//
// The rule, as a user may rely on it. A ref means the thing that was shown with it, and nothing else:
// - While its element is in the document, it means that element, whatever is added, moved or typed elsewhere. But an
//   element that has become another thing is not it any more: when its role changed, when what identifies it changed
//   (id, name, href, data-id and the like), or when its place says something else. The place is the row, list item,
//   or article around it, without its buttons and times; a virtual list that shows another row in the same elements
//   changes it. A link that still leads to the same address is always itself. Outside of such a place only a thing that
//   was one of several alike is judged by the text around it. "Save" that becomes "Saving…" is still it, as long as
//   nothing around it changed.
// - When its element has left, because the page was drawn anew, it means the one element that has the same tag, role,
//   name and identity in the same place, if there is exactly one, and if that one was not shown before or together
//   with it. Of several alike that their places do not tell apart, none is chosen.
// - In every other case it is stale, and stays so until something fits: it is never a guess. Another document never
//   knows it.
// So the "Delete" of a row that is gone never comes to mean the "Delete" of another row.
//
// What is remembered of refs is bounded: beyond that the ones shown longest ago go, those of elements that left first.

const REFS_MAX = 5_000;
// How much is read of a place, and how many elements are compared when one is looked for anew.
const PLACE_CHARS_MAX = 500;
const PLACE_NODES_MAX = 500;
const CLIMB_MAX = 30;
const COMPARED_MAX = 3_000;
const LIKE_MAX = 300;
// A text as short as this, beside a thing that is the only one of its kind, may be what the thing is about.
const CAPTION_MAX = 80;
const PLACES = new Set(["article", "listitem", "row", "treeitem"]);
// Beside these, pages write what is wrong with what was entered.
const FIELDS = new Set([
  "checkbox", "combobox", "listbox", "radio", "searchbox", "slider", "spinbutton", "switch", "textbox",
]);
// Texts that change while the thing they stand in stays what it is.
const PASSING = new Set(["button", "noscript", "script", "select", "style", "template", "time"]);
const MARKS = /^(id|name|href|formaction|data-(.*-)?(id|key|uid|url|href|slug)|hx-(get|post|put|patch|delete))$/;
const VALUE_IS_MARK = "button, option, input[type=radio], input[type=checkbox]";

// What was shown, by number, the one shown longest ago first.
const shown = new Map();
// The other way round. Weak, so that a page's old elements can be collected.
const refsByElement = new WeakMap();
let lastRef = 0;
// Grows with every snapshot.
let showing = 0;

function marksOf(element) {
  // What identifies it to the page's own code. Ids that a framework has counted out are as new as the element.
  let marks = "";
  for (const name of Element.prototype.getAttributeNames.call(element)) {
    if (!MARKS.test(name)) continue;
    const value = attributeOf(element, name);
    if (value && !(name === "id" && /[:«]/.test(value))) marks += `${name}=${value.slice(0, TEXT_MAX)}\n`;
  }
  if (matches(element, VALUE_IS_MARK)) marks += attributeOf(element, "value") ?? "";
  return marks;
}

const isPassing = (element) => PASSING.has(tagOf(element)) || attributeOf(element, "role") === "button";

function wordsOf(node) {
  // Its text whether it is drawn or not, so that menus which come and go in a row do not make it another.
  const known = pass?.words.get(node);
  if (known !== undefined) return known;
  let text = "", seen = 0;
  const read = (each, depth) => {
    for (const child of contentNodesOf(each)) {
      if (text.length > PLACE_CHARS_MAX || ++seen > PLACE_NODES_MAX) return;
      if (nodeTypeOf(child) === Node.TEXT_NODE) text += `${child.data.slice(0, PLACE_CHARS_MAX)} `;
      else if (child instanceof Element && depth < NESTING_MAX && !isPassing(child)) {
        text += `${attributeOf(child, "aria-label") ?? attributeOf(child, "alt") ?? ""} `;
        read(child, depth + 1);
      }
    }
  };
  read(node, 0);
  const words = squeeze(text).slice(0, PLACE_CHARS_MAX);
  pass?.words.set(node, words);
  return words;
}

function rowOf(element) {
  // The nearest place around it, or null.
  const climbed = [];
  let each = parentOf(element), row = null;
  for (; each !== null; each = parentOf(each)) {
    const known = pass?.rows.get(each);
    if (known !== undefined) row = known;
    else if (PLACES.has(roleOf(each))) row = each;
    if (known !== undefined || row !== null) break;
    climbed.push(each);
  }
  if (each !== null) climbed.push(each);
  for (const below of climbed) pass?.rows.set(below, row);
  return row;
}

function placeOf(element) {
  // What its row says; else the nearest text around it, without its own.
  const row = rowOf(element);
  if (row !== null) return {isRow: true, words: wordsOf(row)};
  const own = isPassing(element) ? "" : wordsOf(element);
  let each = parentOf(element);
  for (let up = 0; each !== null && up < CLIMB_MAX; up++, each = parentOf(each)) {
    const words = wordsOf(each);
    if (words.length > own.length) return {isRow: false, words: squeeze(words.replace(own, ""))};
  }
  return {isRow: false, words: ""};
}

function factsOf(element, role = roleOf(element), name = nameOf(element, role ?? "button")) {
  return {tag: tagOf(element), role: role ?? "generic", name, marks: marksOf(element), ...placeOf(element)};
}

const kindOf = (facts) => [facts.tag, facts.role, facts.name, facts.marks].join("\0");
const spotOf = (facts) => `${kindOf(facts)}\0${facts.isRow}\0${facts.words}`;

function tally(all) {
  // How many there are of each kind, and of each kind in one place.
  const counts = new Map();
  for (const facts of all) {
    for (const key of [kindOf(facts), spotOf(facts)]) counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return counts;
}

function refOf(element) {
  // For one that is shown by itself, and not in a snapshot. Whether it is the only one is counted when it is new.
  return inOnePass(() => {
    const facts = factsOf(element);
    return remember(element, facts, refsByElement.has(element) ? null : tallyLike(element, facts));
  });
}

function tallyLike(element, facts) {
  // Only those that are like it; null when they are too many to look at.
  const alike = [facts];
  let seen = 0;
  for (const root of rootsIn(document)) {
    for (const each of queryAll(root, CSS.escape(facts.tag))) {
      if (each === element || (roleOf(each) ?? "generic") !== facts.role || marksOf(each) !== facts.marks) continue;
      if (++seen > LIKE_MAX) return null;
      if (nameOf(each, roleOf(each) ?? "button") === facts.name) alike.push(factsOf(each));
    }
  }
  return tally(alike);
}

function remember(element, facts, counts) {
  // It is shown now. `counts` are those of the whole document; without them it is not known to be the only one.
  let number = refsByElement.get(element);
  let before = shown.get(number);
  // An element that has become another thing is shown as such, and the ref of what it was stays with that.
  if (before !== undefined && !isStill(before, facts, element)) before = undefined;
  if (before === undefined) {
    number = ++lastRef;
    refsByElement.set(element, number);
  }
  const isOnly = (key) => counts.get(key) === 1;
  // Set anew, so that it is the youngest.
  shown.delete(number);
  shown.set(number, {
    ...facts, element: new WeakRef(element), first: before?.first ?? showing, last: showing,
    isOnly: counts ? isOnly(kindOf(facts)) : before?.isOnly ?? false,
    isOnlyThere: counts ? isOnly(spotOf(facts)) : before?.isOnlyThere ?? false,
  });
  if (shown.size > REFS_MAX) forget();
  return documentTag + number;
}

function forget() {
  // A tenth at a time, so that it is rarely done.
  const most = REFS_MAX * 0.9;
  for (const isLiving of [false, true]) {
    for (const [number, was] of shown) {
      if (shown.size <= most) return;
      if (was.last === showing) continue;
      if (isLiving || !isThere(was.element.deref())) shown.delete(number);
    }
  }
}

function byRef(ref) {
  // null: of another document, never given, or of a thing that is no longer there.
  const was = knownAs(ref);
  if (was === undefined) return null;
  return inOnePass(() => {
    const element = was.element.deref();
    if (isThere(element)) return isStill(was, factsOf(element), element) ? element : null;
    const heir = heirOf(was);
    if (heir !== null) was.element = new WeakRef(heir);
    return heir;
  });
}

function knownAs(ref) {
  return ref.startsWith(documentTag) ? shown.get(Number(ref.slice(documentTag.length))) : undefined;
}

function isStill(was, now, element) {
  if (now.role !== was.role || now.marks !== was.marks) return false;
  if (leadsSomewhere(element)) return true;
  const isSaid = now.name === was.name && was.isOnly;
  if (!was.isRow) return isSaid || now.words === was.words;
  if (isSaid && was.marks && FIELDS.has(was.role)) return true;
  return now.isRow && now.words === was.words && (now.name === was.name || now.words !== "");
}

function leadsSomewhere(element) {
  return tagOf(element) === "a" && /^(?!#|javascript:)./i.test(attributeOf(element, "href") ?? "");
}

function heirOf(was) {
  // The one that has taken its place since it was shown.
  let heir = null, compared = 0;
  for (const root of rootsIn(document)) {
    for (const element of queryAll(root, CSS.escape(was.tag))) {
      if ((roleOf(element) ?? "generic") !== was.role || marksOf(element) !== was.marks) continue;
      if (++compared > COMPARED_MAX) return null;
      if (was.role === "generic" && !isUsable(element, null)) continue;
      const now = factsOf(element);
      if (now.name !== was.name || !isSamePlace(was, now) || isHiddenFromReaders(element)) continue;
      if (heir !== null) return null;
      heir = element;
    }
  }
  return heir !== null && isYounger(heir, was) ? heir : null;
}

function isSamePlace(was, now) {
  if (now.isRow !== was.isRow) return false;
  if (was.isRow || !was.isOnly) return was.isOnlyThere && now.words === was.words;
  // The only one of its kind: counters around it may have counted on.
  if (was.marks || was.words.length > CAPTION_MAX) return true;
  const letters = (text) => text.replace(/[^\p{L}]+/gu, " ").trim();
  return letters(now.words) === letters(was.words);
}

function isYounger(element, was) {
  const number = refsByElement.get(element);
  return number === undefined || (shown.get(number)?.first ?? 0) > was.last;
}

function holdRef(ref) {
  held = byRef(ref);
  return held !== null;
}

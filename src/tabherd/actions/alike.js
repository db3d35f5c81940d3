// Tells how alike two names are, and what a part of a selector says about the name and the role that are wanted.
//
// Names are compared word by word, whatever their case and punctuation: a word may be begun only, have a slip of the
// pen, or be another word for the same. Pure: nothing of the page is read here.

// Less alike than this is not alike.
const ALIKE_MIN = 0.5;
const COMPARED_CHARS_MAX = 60;
const COMPARED_WORDS_MAX = 6;
const WANTED_MAX = 4;

// Words of ids and classes that say what a thing is and not which.
const KINDS = new Map(Object.entries({
  btn: "button", button: "button", link: "link", input: "textbox", field: "textbox", textbox: "textbox", box: null,
  checkbox: "checkbox", radio: "radio", select: "combobox", dropdown: "combobox", tab: "tab", icon: null, form: null,
  wrapper: null, container: null, the: null, js: null, iframe: "iframe", frame: "iframe",
}));
// Different words for one thing.
const SYNONYMS = [
  ["sign in", "log in", "login", "signin", "log on", "logon"],
  ["sign out", "log out", "logout", "signout", "log off", "logoff"],
  ["sign up", "signup", "register", "create account"],
  ["remove", "delete", "trash", "erase"],
  ["cart", "basket", "bag"],
  ["email", "e mail"],
  ["password", "passwd", "pwd", "passphrase"],
  ["phone", "telephone", "tel", "mobile"],
  ["search", "find", "query"],
  ["submit", "send"],
  ["next", "continue"],
  ["close", "dismiss"],
];
const CANON = new Map(SYNONYMS.flatMap(([word, ...others]) => others.map((other) => [other, word])));
const SYNONYM = new RegExp(`\\b(?:${[...CANON.keys()].join("|")})\\b`, "g");

function fold(text) {
  // Lower case words with one space between them; saveBtn, save-btn and "Save: btn" are the same.
  const spaced = text.slice(0, COMPARED_CHARS_MAX).replace(/(\p{Ll})(\p{Lu})/gu, "$1 $2").toLowerCase();
  return spaced.replace(/[^\p{L}\p{N}]+/gu, " ").trim();
}

function canonical(folded) {
  return folded.replace(SYNONYM, (word) => CANON.get(word));
}

// --- What is wanted ---------------------------------------------------------------------------------------------

function wantedOf(part) {
  // Texts to compare with, each split into words, and the role; nothing when the part says nothing of either.
  const {texts, role} = HINTS[part.by]?.(part) ?? {texts: [], role: null};
  let kind = role;
  const wanted = [];
  for (const text of texts.slice(0, WANTED_MAX)) {
    const folded = fold(text);
    if (!folded) continue;
    const all = folded.split(" ");
    const telling = all.filter((word) => !KINDS.has(word));
    kind ??= all.map((word) => KINDS.get(word)).find(Boolean) ?? null;
    const spelled = (telling.length ? telling : all).slice(0, COMPARED_WORDS_MAX);
    const plain = spelled.join(" "), meant = canonical(plain);
    wanted.push({folded, spelled, words: meant.split(" "), joined: spelled.join(""), isPlain: meant === plain});
  }
  return {texts: wanted, role: kind, trace: traceOf(wanted)};
}

function traceOf(wanted) {
  // What a name that is alike has at least: the beginning or the end of a word. Most names are dismissed by this alone,
  // which costs a tenth of comparing them.
  const words = new Set(wanted.flatMap((each) => [...each.spelled, ...each.words]));
  for (const [word, ...others] of SYNONYMS) {
    if (wanted.some((each) => each.words.join(" ").includes(word))) for (const other of others) words.add(other);
  }
  const ends = Array.from(words, (word) => {
    const start = `(?<![a-z])${word[0]}`;
    return word.length < 3 ? word : `${start}|${word.slice(0, 2)}|${word.slice(-2)}(?![a-z])`;
  });
  return ends.length ? new RegExp(ends.join("|"), "i") : /(?!)/;
}

const HINTS = {
  text: (part) => ({texts: [part.body], role: null}),
  role: (part) => ({texts: part.name === null ? [] : [part.name], role: part.role}),
  // What a ref was, where that is known.
  ref: (part) => ({texts: part.name ? [part.name] : [], role: part.role ?? null}),
  css: (part) => hintsOfCss(part.body),

  xpath(part) {
    const literals = Array.from(part.body.matchAll(/"([^"]*)"|'([^']*)'/g), (found) => found[1] ?? found[2]);
    const tag = /([a-z][a-z0-9]*)(?:\[[^/]*)?$/i.exec(part.body);
    return {texts: literals, role: tag ? roleOfTag(tag[1].toLowerCase(), "") : null};
  },
};

const CSS_TOKEN = new RegExp([
  /\[\s*([\w-]+)\s*(?:[~|^$*]?=\s*(?:"([^"]*)"|'([^']*)'|([^\]\s]+))[^\]]*)?\]/,
  /[#.]((?:[\w-]|[^\0-\x7f]|\\.)+)/,
  /::?[\w-]+(?:\([^)]*\))?/,
  /(\s*[>+~,]\s*|\s+)/,
  /([A-Za-z][\w-]*)/,
].map((each) => each.source).join("|"), "g");

function hintsOfCss(css) {
  // Of the last compound; where that has no words of its own (`#login > button`), of the one before.
  let texts = [], before = [], tag = "", type = "";
  for (const found of css.slice(0, 500).matchAll(CSS_TOKEN)) {
    const [, attribute, doubled, single, bare, name, combinator, tagName] = found;
    const value = doubled ?? single ?? bare;
    if (combinator !== undefined) {
      before = texts.length ? texts : before;
      // Words that are no tags: somebody has written a text where a selector belongs.
      texts = /^\s+$/.test(combinator) && tag && !isTag(tag) ? [`${texts.join(" ") || tag}`] : [];
      tag = type = "";
    } else if (name !== undefined) texts.push(name);
    else if (value !== undefined) {
      texts.push(value);
      if (attribute === "type") type = value;
    } else if (tagName !== undefined) {
      tag = tagName;
      if (!isTag(tag)) texts = [squeeze(`${texts.join(" ")} ${tag}`)];
    }
  }
  return {texts: texts.length ? texts : before, role: tag ? roleOfTag(tag.toLowerCase(), type) : null};
}

function isTag(name) {
  // A custom element has a hyphen; the browser knows the rest.
  return name.includes("-") || !(Document.prototype.createElement.call(document, name) instanceof HTMLUnknownElement);
}

function roleOfTag(tag, type) {
  if (tag === "a") return "link";
  if (tag === "select") return "combobox";
  if (tag === "input") return Object.hasOwn(INPUT_ROLES, type) ? INPUT_ROLES[type] : "textbox";
  return Object.hasOwn(ROLES, tag) ? ROLES[tag] : null;
}

// --- How alike --------------------------------------------------------------------------------------------------

function alikeness(wanted, text) {
  // 1: the same, whatever its case. Else how much of the wanted words is there, and a little, how much else is.
  const folded = fold(text);
  if (folded === wanted.folded) return 1;
  if (!folded) return 0;
  const spelled = folded.split(" ").slice(0, 2 * COMPARED_WORDS_MAX);
  const meant = canonical(folded);
  const byMeaning = common(wanted.words, meant === folded ? spelled : meant.split(" "));
  if (byMeaning >= ALIKE_MIN) return byMeaning;
  // A synonym must not hide a slip of the pen, nor a missing space anything.
  const asWritten = meant === folded && wanted.isPlain ? 0 : common(wanted.spelled, spelled);
  const other = spelled.join("");
  return Math.max(asWritten, wordAlikeness(wanted.joined, other), containment(wanted.joined, other));
}

function common(wanted, words) {
  const most = cover(wanted, words);
  // The rest could not make it alike any more.
  return most < 0.4 ? 0 : 0.75 * most + 0.2 * cover(words, wanted);
}

function cover(words, others) {
  let chars = 0, covered = 0;
  for (const word of words) {
    let best = 0;
    for (const other of others) best = Math.max(best, wordAlikeness(word, other));
    chars += word.length;
    covered += best * word.length;
  }
  return chars ? covered / chars : 0;
}

function wordAlikeness(one, other) {
  if (one === other) return 1;
  const [short, long] = one.length < other.length ? [one, other] : [other, one];
  if (short.length >= 3 && long.startsWith(short)) return 0.5 + 0.4 * short.length / long.length;
  if (short.length < 4 || long.length - short.length > 2 || long.length > 24) return 0;
  // A slip of the pen rarely takes both ends.
  if (one[0] !== other[0] && one.at(-1) !== other.at(-1)) return 0;
  const like = 1 - slips(one, other) / long.length;
  return like < 0.7 ? 0 : like * like;
}

function slips(one, other) {
  // Letters to add, drop, change or swap to make one word the other.
  let older = [], old = Array.from({length: other.length + 1}, (_, at) => at);
  for (let i = 1; i <= one.length; i++) {
    const row = [i];
    for (let j = 1; j <= other.length; j++) {
      const isSame = one[i - 1] === other[j - 1];
      row[j] = Math.min(old[j] + 1, row[j - 1] + 1, old[j - 1] + (isSame ? 0 : 1));
      if (i > 1 && j > 1 && one[i - 1] === other[j - 2] && one[i - 2] === other[j - 1]) {
        row[j] = Math.min(row[j], older[j - 2] + 1);
      }
    }
    older = old;
    old = row;
  }
  return old[other.length];
}

function containment(one, other) {
  // For words that nobody has parted: signinbutton, and writing that has no spaces.
  const [short, long] = one.length < other.length ? [one, other] : [other, one];
  const isEnough = short.length >= 4 || (short.length >= 2 && /[^\0-\u024f]/.test(short));
  return isEnough && long.includes(short) ? 0.5 + 0.35 * short.length / long.length : 0;
}

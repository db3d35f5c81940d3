// Trees of what should be there, and the least work to get from what is there to them.
//
// h() describes an element; render() brings a container to that description. Elements that stay keep their focus, their
// scroll position and what was typed into them. Text is always text: nothing here turns a string into markup.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "g", "line", "circle", "rect", "polyline", "text", "title", "use", "defs"]);
// Set as properties, because what the person typed or ticked lives there and not in the attribute.
const PROPERTIES = new Set(["value", "checked", "indeterminate", "open", "disabled", "hidden"]);

// props: key (which of its siblings it is), class, style ({name: value}), on* (handlers), ref (called with a new
// element, once), anything else an attribute; null and false are left out.
export function h(tag, props, ...children) {
  return { tag, props: props || {}, children: flat(children, []), key: props?.key, node: null };
}

function flat(children, into) {
  for (const child of children) {
    if (Array.isArray(child)) flat(child, into);
    else if (child === null || child === undefined || child === false || child === true) continue;
    else into.push(typeof child === "object" ? child : { tag: "", text: String(child), node: null });
  }
  return into;
}

// What is in the container now is as the tree says.
export function render(container, ...tree) {
  const wanted = flat(tree, []);
  if (!container.tree) container.replaceChildren();
  arrange(container, container.tree || [], wanted, container.namespaceURI === SVG);
  container.tree = wanted;
}

function arrange(parent, before, wanted, isSvg) {
  const keyed = new Map();
  const plain = [];
  for (const old of before) (old.key === undefined ? plain.push(old) : keyed.set(old.key, old));
  let next = 0;
  let place = parent.firstChild;
  for (const want of wanted) {
    let old = null;
    if (want.key !== undefined) {
      old = keyed.get(want.key);
      if (old && old.tag === want.tag) keyed.delete(want.key);
      else old = null;
    } else if (next < plain.length && plain[next].tag === want.tag) {
      old = plain[next];
      plain[next++] = null;
    } else {
      // Something unkeyed came or went: look ahead for one of the same kind.
      const found = plain.findIndex((one, index) => index >= next && one && one.tag === want.tag);
      if (found >= 0 && before.length > wanted.length) {
        old = plain[found];
        plain[found] = null;
        next = found + 1;
      }
    }
    const node = old ? update(old, want, isSvg) : create(want, isSvg);
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
  }
  for (const old of plain) if (old) old.node.remove();
  for (const old of keyed.values()) old.node.remove();
}

function create(want, isSvg) {
  if (!want.tag) return (want.node = document.createTextNode(want.text));
  isSvg = want.tag === "svg" || (isSvg && SVG_TAGS.has(want.tag));
  const node = isSvg ? document.createElementNS(SVG, want.tag) : document.createElement(want.tag);
  want.node = node;
  for (const [name, value] of Object.entries(want.props)) set(node, name, undefined, value);
  arrange(node, [], want.children, isSvg);
  // An option can only be chosen once it is there.
  if (want.tag === "select" && "value" in want.props) node.value = want.props.value;
  want.props.ref?.(node);
  return node;
}

function update(old, want, isSvg) {
  const node = (want.node = old.node);
  if (!want.tag) {
    if (old.text !== want.text) node.data = want.text;
    return node;
  }
  for (const name in old.props) if (!(name in want.props)) set(node, name, old.props[name], null);
  for (const name in want.props) set(node, name, old.props[name], want.props[name]);
  arrange(node, old.children, want.children, isSvg || want.tag === "svg");
  return node;
}

function set(node, name, before, value) {
  if (name === "key" || name === "ref") return;
  if (name === "style") {
    for (const part in before || {}) if (!value || !(part in value)) node.style.removeProperty(part);
    for (const part in value || {}) if (before?.[part] !== value[part]) node.style.setProperty(part, value[part]);
    return;
  }
  // An option's value is what its attribute says; without one, even if that is empty, it is its text.
  if (PROPERTIES.has(name) && !(name === "value" && node.localName === "option")) {
    const wanted = value ?? (name === "value" ? "" : false);
    if (node[name] !== wanted) node[name] = wanted;
    return;
  }
  if (before === value) return;
  if (name.startsWith("on")) node[name] = value || null;
  else if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : value);
}

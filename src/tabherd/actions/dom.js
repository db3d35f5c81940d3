// Properties and methods of elements and of the document, taken from their prototypes.
//
// A form whose field is called "children" has that field where its children should be, and a document with a form that
// is called "body" has that form for its body: names in the markup hide what is built in, also from a world of one's
// own. A page that hides `assignedSlot` or `parentNode` could send whoever follows them round in a circle.

function taken(kind, name) {
  const {get, value} = Object.getOwnPropertyDescriptor(kind.prototype, name);
  return Function.prototype.call.bind(get ?? value);
}

const isAttached = taken(Node, "isConnected");
const nodeTypeOf = taken(Node, "nodeType");
const dispatch = taken(EventTarget, "dispatchEvent");
const slotOf = taken(Element, "assignedSlot");
const childrenOf = taken(Element, "children");
const firstElementOf = taken(Element, "firstElementChild");
const boundsOf = taken(Element, "getBoundingClientRect");
const piecesOf = taken(Element, "getClientRects");
const isDrawn = taken(Element, "checkVisibility");
const bringIntoView = taken(Element, "scrollIntoView");
const markupOf = taken(Element, "outerHTML");
const moveBy = taken(Element, "scrollBy");
const innerTextOf = taken(HTMLElement, "innerText");
const isContentEditable = taken(HTMLElement, "isContentEditable");
const scrollLeftOf = taken(Element, "scrollLeft");
const scrollTopOf = taken(Element, "scrollTop");
const scrollWidthOf = taken(Element, "scrollWidth");
const scrollHeightOf = taken(Element, "scrollHeight");
const clientWidthOf = taken(Element, "clientWidth");
const clientHeightOf = taken(Element, "clientHeight");
const focusHtml = taken(HTMLElement, "focus");
const takeFocus = (element) => element instanceof HTMLElement ? focusHtml(element) : element.focus();
// What a weak reference gave.
const isThere = (node) => Boolean(node) && isAttached(node);

function ofDocument(name) {
  const read = taken(Document, name);
  return () => read(document);
}

const theBody = ofDocument("body");
const theRoot = ofDocument("documentElement");
const theTitle = ofDocument("title");
const theScroller = ofDocument("scrollingElement");
const theFocused = ofDocument("activeElement");
const theReadyState = ofDocument("readyState");
const theVisibility = ofDocument("visibilityState");
const theAnimations = ofDocument("getAnimations");
const theTimeline = ofDocument("timeline");
const isHiddenPage = () => theVisibility() === "hidden";

// How many pixels of the screen a pixel of the page is wide.
const screenScale = () => devicePixelRatio;

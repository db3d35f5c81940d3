// A person's mouse, fingers and keys over the picture of a page, as messages to that page.
//
// Places are those of the page itself, exactly: the picture may be drawn at any size. Keys come through a text field
// that nobody sees, because input methods and the keyboards of phones need one.

// Alt 1, Control 2, Meta 4, Shift 8.
const modifiersOf = (event) => (event.altKey ? 1 : 0) | (event.ctrlKey ? 2 : 0) | (event.metaKey ? 4 : 0) | (event.shiftKey ? 8 : 0);
const BUTTONS = ["left", "middle", "right", "back", "forward"];
// Two presses at the same place within this time belong together.
const AGAIN_MS = 500;
const AGAIN_PX = 5;
// A finger that moves further than this scrolls; one that stays longer than that presses the right button.
const SCROLL_PX = 8;
const LONG_PRESS_MS = 600;
// One line of a wheel that counts in lines.
const LINE_PX = 40;
const TEXT_MAX = 100_000;

// Puts the hands on: `picture` is what is pointed at, `keys` the text field. `page()`: {width, height} in its own
// pixels, or null. `isDriving()`: whether anything may be sent. `say(type, fields)` sends it. `leave()`: the person wants
// the keyboard back. Returns what takes the hands off again.
export function handsOn(picture, keys, { page, isDriving, say, leave }) {
  const ending = new AbortController();
  const on = (target, type, heard, more = {}) => target.addEventListener(type, heard, { signal: ending.signal, ...more });
  // Moves and turns of the wheel that are sent with the next frame.
  let pending = null;
  let isSending = false;
  // The last press, to tell double clicks.
  let last = { at: 0, x: 0, y: 0, button: "", count: 0 };
  let touch = null;
  // Keys that are down, by their place.
  const down = new Map();

  function place(event) {
    const box = picture.getBoundingClientRect();
    const size = page();
    return { x: ((event.clientX - box.left) / box.width) * size.width, y: ((event.clientY - box.top) / box.height) * size.height };
  }

  const mayAct = () => isDriving() && page() !== null;

  // --- The mouse ----------------------------------------------------------------------------------------------

  function later(message) {
    const isSame = pending && pending.event === message.event && pending.modifiers === message.modifiers;
    if (pending && !isSame) flush();
    if (isSame && message.event === "wheel") {
      message.deltaX += pending.deltaX;
      message.deltaY += pending.deltaY;
    }
    pending = message;
    if (isSending) return;
    isSending = true;
    requestAnimationFrame(() => {
      isSending = false;
      flush();
    });
  }

  function flush() {
    const message = pending;
    pending = null;
    if (message && mayAct()) say("mouse", message);
  }

  // CDP's own order of bits, which is also that of pointer events.
  const common = (event) => ({ ...place(event), modifiers: modifiersOf(event), buttons: event.buttons & 31 });

  function press(at, button, modifiers = 0) {
    const isAgain = button === last.button && performance.now() - last.at < AGAIN_MS && Math.hypot(at.x - last.x, at.y - last.y) < AGAIN_PX;
    last = { at: performance.now(), ...at, button, count: isAgain ? (last.count % 3) + 1 : 1 };
    return { ...at, button, clickCount: last.count, modifiers };
  }

  on(picture, "pointerdown", (event) => {
    if (!mayAct()) return;
    // The focus goes to the text field, and nothing is selected around the picture.
    event.preventDefault();
    keys.focus({ preventScroll: true });
    picture.setPointerCapture(event.pointerId);
    if (event.pointerType === "touch") {
      beginTouch(event);
      return;
    }
    flush();
    const { x, y } = place(event);
    say("mouse", { ...press({ x, y }, BUTTONS[event.button] || "left", modifiersOf(event)), event: "down", buttons: event.buttons & 31 });
  });

  on(picture, "pointermove", (event) => {
    if (!mayAct()) return;
    if (event.pointerType === "touch") moveTouch(event);
    else if (event.button !== -1) turnButton(event);
    else later({ event: "move", ...common(event) });
  });

  // A second button that goes down or up while the first is down is told as a move.
  function turnButton(event) {
    flush();
    const button = BUTTONS[event.button] || "left";
    const isDown = (event.buttons & [1, 4, 2, 8, 16][event.button]) !== 0;
    say("mouse", { event: isDown ? "down" : "up", ...common(event), button, clickCount: 1 });
  }

  on(picture, "pointerup", (event) => {
    if (event.pointerType === "touch") {
      endTouch(event);
      return;
    }
    if (!mayAct()) return;
    flush();
    say("mouse", { event: "up", ...common(event), button: BUTTONS[event.button] || "left", clickCount: last.count });
  });

  on(picture, "pointercancel", () => { touch = null; });

  on(picture, "wheel", (event) => {
    if (!mayAct()) return;
    event.preventDefault();
    const scale = [1, LINE_PX, page().height][event.deltaMode];
    later({ event: "wheel", ...common(event), deltaX: event.deltaX * scale, deltaY: event.deltaY * scale });
  }, { passive: false });

  on(picture, "contextmenu", (event) => isDriving() && event.preventDefault());
  // Chromium on Linux pastes at a middle click.
  on(picture, "auxclick", (event) => isDriving() && event.preventDefault());

  // --- Fingers: a tap clicks, a drag scrolls, a long press is the right button ------------------------------------

  function beginTouch(event) {
    // With a second finger the person does something else.
    touch = touch === null ? { id: event.pointerId, ...place(event), isScrolling: false, since: performance.now() } : { id: -1 };
  }

  function moveTouch(event) {
    if (touch?.id !== event.pointerId) return;
    const at = place(event);
    if (!touch.isScrolling && Math.hypot(at.x - touch.x, at.y - touch.y) < SCROLL_PX) return;
    later({ event: "wheel", ...at, modifiers: 0, buttons: 0, deltaX: touch.x - at.x, deltaY: touch.y - at.y });
    Object.assign(touch, at, { isScrolling: true });
  }

  function endTouch(event) {
    const ended = touch;
    touch = null;
    flush();
    if (ended?.id !== event.pointerId || ended.isScrolling || !mayAct()) return;
    const at = { x: ended.x, y: ended.y };
    const isLong = performance.now() - ended.since >= LONG_PRESS_MS;
    const pressed = press(at, isLong ? "right" : "left");
    say("mouse", { event: "move", ...at });
    say("mouse", { ...pressed, event: "down", buttons: isLong ? 2 : 1 });
    say("mouse", { ...pressed, event: "up", buttons: 0 });
  }

  // --- Keys -----------------------------------------------------------------------------------------------------

  on(keys, "keydown", (event) => {
    if (event.key === "Escape" && event.ctrlKey && event.altKey) {
      event.preventDefault();
      leave();
      return;
    }
    if (!isDriving()) return;
    // What an input method is busy with becomes text when it is done.
    if (event.isComposing || event.key === "Process" || event.key === "Unidentified" || event.key === "Dead") return;
    // The paste itself follows, with the text.
    if (event.key.toLowerCase() === "v" && (event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    const isAltGr = event.getModifierState("AltGraph");
    const key = { key: event.key, code: event.code, modifiers: isAltGr ? modifiersOf(event) & 8 : modifiersOf(event) };
    down.set(event.code || event.key, key);
    say("key", { event: "down", ...key, repeat: event.repeat });
  });

  on(keys, "keyup", (event) => {
    if (!down.delete(event.code || event.key)) return;
    event.preventDefault();
    say("key", { event: "up", key: event.key, code: event.code, modifiers: modifiersOf(event) });
  });

  // Nothing stays pressed that the person lets go of where we do not see it.
  on(keys, "blur", () => {
    for (const key of [...down.values()].reverse()) say("key", { event: "up", ...key, modifiers: 0 });
    down.clear();
    keys.value = "";
  });

  function type(text) {
    for (let at = 0; at < text.length; at += TEXT_MAX) say("text", { text: text.slice(at, at + TEXT_MAX) });
  }

  on(keys, "paste", (event) => {
    event.preventDefault();
    if (isDriving()) type(event.clipboardData.getData("text/plain"));
  });

  on(keys, "input", (event) => {
    if (event.isComposing) return;
    if (isDriving()) {
      if (event.inputType === "deleteContentBackward") {
        for (const turn of ["down", "up"]) say("key", { event: turn, key: "Backspace", code: "Backspace" });
      } else if (keys.value) type(keys.value);
    }
    keys.value = "";
  });

  on(keys, "compositionend", () => {
    if (isDriving() && keys.value) type(keys.value);
    keys.value = "";
  });

  return () => ending.abort();
}

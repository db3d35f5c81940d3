"""Looks at a page as a person would who needs it readable: names of controls, contrast of texts, nothing cut off."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

# What Chromium itself calls the parts of a page that a person does something with, or is shown.
NAMED_ROLES = {
    "button", "checkbox", "combobox", "dialog", "grid", "img", "image", "link", "listbox", "meter", "searchbox",
    "slider", "spinbutton", "switch", "tab", "textbox",
}  # fmt: skip

# Every visible text, with its colour, what is behind it, and how far apart they are (WCAG 2). What is half transparent
# is laid over what is behind it; a canvas tells what a colour is, however it is written.
CONTRASTS = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const rgba = (colour) => {
    if (!known.has(colour)) known.set(colour, painted(colour));
    return known.get(colour);
  };
  const painted = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
  const light = (colour) => {
    const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = colour.map((part) => linear(part / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) {
      const colour = rgba(getComputedStyle(one).backgroundColor);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] === 1 || one.matches("dialog")) break;
    }
    return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255, 1]);
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim();
    const element = walker.currentNode.parentElement;
    if (!text || !element.checkVisibility() || element.closest("noscript, :disabled, option, [inert]")) continue;
    const style = getComputedStyle(element);
    const under = behind(element);
    const one = light(over(rgba(style.color), under)), other = light(under);
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    found.push({ text: text.slice(0, 40), colour: style.color, ratio });
  }
  return found;
}"""

# The contrast of one colour of the palette on another, both given as names of custom properties.
PALETTE = """(pairs) => {
  const probe = document.body.appendChild(document.createElement("span"));
  const light = (name) => {
    probe.style.color = `var(${name})`;
    const parts = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255);
    const [r, g, b] = parts.map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratios = pairs.map(([one, other]) => {
    const [a, b] = [light(one), light(other)];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  });
  probe.remove();
  return ratios;
}"""

# What sticks out to the right of the window, unless it can be scrolled to within something of its own.
OVERFLOW = """() => {
  const wide = document.documentElement.clientWidth;
  const scrolls = (element) => {
    for (let one = element.parentElement; one; one = one.parentElement) {
      const { overflowX } = getComputedStyle(one);
      const isWithin = one.getBoundingClientRect().right <= wide + 1 && !one.matches("main, body, html");
      if (overflowX !== "visible" && isWithin) return true;
    }
    return false;
  };
  const out = [...document.body.querySelectorAll("*")]
    .filter((one) => one.checkVisibility() && one.getBoundingClientRect().right > wide + 1 && !scrolls(one))
    .map((one) => `${one.tagName}.${one.getAttribute("class")}: ${one.textContent.slice(0, 40)}`);
  for (const one of document.querySelectorAll("html, main")) {
    if (one.scrollWidth > one.clientWidth + 1) out.push(`${one.tagName}: ${one.scrollWidth} in ${one.clientWidth}`);
  }
  return out;
}"""


def nameless(page: Page) -> list[str]:
    """Controls and images that somebody who cannot see them is told nothing about."""
    client = page.context.new_cdp_session(page)
    try:
        nodes: list[dict[str, Any]] = client.send("Accessibility.getFullAXTree")["nodes"]
    finally:
        client.detach()
    wanted = [node for node in nodes if not node["ignored"] and node["role"]["value"] in NAMED_ROLES]
    return [str(node["role"]["value"]) for node in wanted if not str(node.get("name", {}).get("value", "")).strip()]


def faint(page: Page, least: float) -> list[dict[str, Any]]:
    """Texts that stand out less than that from what is behind them."""
    return [each for each in page.evaluate(CONTRASTS) if each["ratio"] < least]


def contrasts(page: Page, pairs: list[tuple[str, str]]) -> dict[tuple[str, str], float]:
    """How far apart the colours of each pair are."""
    return dict(zip(pairs, page.evaluate(PALETTE, [list(pair) for pair in pairs]), strict=True))


def overflow(page: Page) -> list[str]:
    """What is wider than the window."""
    found: list[str] = page.evaluate(OVERFLOW)
    return found

// A line of numbers small enough to stand beside a word.

import { h } from "./dom.js";

const WIDTH = 120;
const HEIGHT = 28;

// null is a gap. The line is scaled to its own largest value, or to `top` if that is more.
export function spark(numbers, { top = 0, label = "" } = {}) {
  const known = numbers.filter((number) => number !== null && number !== undefined);
  const highest = Math.max(top, ...known, 0) || 1;
  const step = WIDTH / Math.max(1, numbers.length - 1);
  let path = "";
  let isDown = false;
  numbers.forEach((number, index) => {
    if (number === null || number === undefined) {
      isDown = false;
      return;
    }
    const y = HEIGHT - 2 - (number / highest) * (HEIGHT - 4);
    path += `${isDown ? "L" : "M"}${(index * step).toFixed(1)} ${y.toFixed(1)}`;
    isDown = true;
  });
  return h("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    h("line", { x1: 0, y1: HEIGHT - 1, x2: WIDTH, y2: HEIGHT - 1, class: "floor" }),
    path && h("path", { d: path }));
}

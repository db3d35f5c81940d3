"""Draws a layout as one SVG that stands alone: readable on light and on dark ground, the same bytes each time."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from diagram_layout import START_ROOM, Arrow, Layout, Loop, Rect

HEAD_LENGTH = 7
HEAD_WIDTH = 4

# Without a ground of its own, so that it lies on that of the page; the colours follow what the reader prefers.
STYLE = """
svg { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
text { text-anchor: middle; dominant-baseline: central; }
.state { font-size: 13px; font-weight: 600; fill: #14213d; }
.label { font-size: 12px; fill: #40506b; }
.box { fill: #eef3fb; stroke: #3b6fb6; stroke-width: 1.4; }
.end { fill: #f3f1ec; stroke: #8a8172; }
.inner { fill: none; stroke: #8a8172; stroke-width: 1; }
.line { fill: none; stroke: #6b7a92; stroke-width: 1.3; }
.head { fill: #6b7a92; }
.return { stroke: #b3602a; }
.head.return { fill: #b3602a; stroke: none; }
.label.return { fill: #9a4d1b; stroke: none; }
.dot { fill: #14213d; }
@media (prefers-color-scheme: dark) {
  .state { fill: #eef3fb; }
  .label { fill: #b7c3d9; }
  .box { fill: #1c2a44; stroke: #6f9fe0; }
  .end { fill: #2a2823; stroke: #a89e8b; }
  .inner { stroke: #a89e8b; }
  .line { stroke: #8593ab; }
  .head { fill: #8593ab; }
  .return { stroke: #e0935c; }
  .head.return { fill: #e0935c; }
  .label.return { fill: #eba873; }
  .dot { fill: #eef3fb; }
}
"""


def draw(layout: Layout, title: str, description: str) -> str:
    """The whole file."""
    return "\n".join(_lines(layout, title, description)) + "\n"


def _lines(layout: Layout, title: str, description: str) -> Iterator[str]:
    width, height = _number(layout.width), _number(layout.height)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' role="img" aria-labelledby="title description">'
    )
    yield f'<title id="title">{escape(title)}</title>'
    yield f'<desc id="description">{escape(description)}</desc>'
    yield f"<style>{STYLE}</style>"
    for arrow in layout.arrows:
        yield from _arrow(arrow)
    for loop in layout.loops:
        yield from _loop(loop)
    for box in layout.boxes:
        yield from _box(box, is_start=box.text in layout.starts, is_end=box.text in layout.ends)
    labels = [(arrow.label, "label return" if arrow.is_return else "label") for arrow in layout.arrows]
    for label, kind in (*labels, *((loop.label, "label") for loop in layout.loops)):
        yield f'<text class="{kind}" x="{_number(label.x)}" y="{_number(label.y)}">{escape(label.text)}</text>'
    yield "</svg>"


def _arrow(arrow: Arrow) -> Iterator[str]:
    kind = " return" if arrow.is_return else ""
    way = -1 if arrow.is_return else 1
    path, at = [], None
    for piece in arrow.pieces:
        x1, y1, x2, y2 = piece
        if piece is arrow.pieces[-1]:
            # The line ends inside the head, so that its square end does not show at the tip.
            y2 -= way * (HEAD_LENGTH - 1)
        if at != (x1, y1):
            path.append(f"M{_number(x1)} {_number(y1)}")
        if abs(x1 - x2) < 0.05:
            path.append(f"V{_number(y2)}")
        else:
            bow = _number((y1 + y2) / 2)
            path.append(f"C{_number(x1)} {bow} {_number(x2)} {bow} {_number(x2)} {_number(y2)}")
        at = (x2, y2)
    yield f'<path class="line{kind}" d="{" ".join(path)}"/>'
    x, y = arrow.pieces[-1][2:]
    yield _head(x, y, 0, way, kind)


def _head(x: float, y: float, across: int, down: int, kind: str = "") -> str:
    """A tip at this point; it points along the given direction."""
    back = (x - across * HEAD_LENGTH, y - down * HEAD_LENGTH)
    corners = [
        (x, y),
        (back[0] - down * HEAD_WIDTH, back[1] - across * HEAD_WIDTH),
        (back[0] + down * HEAD_WIDTH, back[1] + across * HEAD_WIDTH),
    ]
    points = " ".join(f"{_number(cx)},{_number(cy)}" for cx, cy in corners)
    return f'<polygon class="head{kind}" points="{points}"/>'


def _loop(loop: Loop) -> Iterator[str]:
    x, up, down, out = (_number(value) for value in (loop.x, loop.y - 8, loop.y + 8, loop.x + 26))
    tip = _number(loop.x + HEAD_LENGTH - 1)
    yield f'<path class="line" d="M{x} {up} C{out} {up} {out} {down} {tip} {down}"/>'
    yield _head(loop.x, loop.y + 8, -1, 0)


def _box(box: Rect, *, is_start: bool, is_end: bool) -> Iterator[str]:
    left, top = box.x - box.width / 2, box.y - box.height / 2
    if is_start:
        yield f'<circle class="dot" cx="{_number(box.x)}" cy="{_number(top - START_ROOM + 5)}" r="5"/>'
        down = f"M{_number(box.x)} {_number(top - START_ROOM + 10)} V{_number(top - HEAD_LENGTH + 1)}"
        yield f'<path class="line" d="{down}"/>'
        yield _head(box.x, top, 0, 1)
    yield _rect("box end" if is_end else "box", left, top, box.width, box.height, 8)
    if is_end:
        yield _rect("inner", left + 3, top + 3, box.width - 6, box.height - 6, 5)
    yield f'<text class="state" x="{_number(box.x)}" y="{_number(box.y)}">{escape(box.text)}</text>'


def _rect(kind: str, x: float, y: float, width: float, height: float, radius: int) -> str:
    where = f'x="{_number(x)}" y="{_number(y)}" width="{_number(width)}" height="{_number(height)}"'
    return f'<rect class="{kind}" {where} rx="{radius}"/>'


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")

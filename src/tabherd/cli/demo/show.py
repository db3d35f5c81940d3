"""How a demo looks: a live picture on a terminal, lines of narration in a pipe, nothing but the result for programs."""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ... import wire
from .record import Mishap, Phase, Told, now_ms
from .verdict import Verdict

# Lines of narration that stay in the picture.
LINES_SHOWN: Final = 9
# How wide an agent and the tabs are drawn; together they fit an old terminal.
AGENT_WIDTH: Final = 22
DOING_WIDTH: Final = 16
TABS_WIDTH: Final = 36
PICTURES_PER_S: Final = 8
# How what an agent does is coloured; what is not here is plain.
COLOURS: Final = {
    "waits for a tab": "yellow",
    "waits for board": "cyan",
    "works": "green",
    "adds a line": "green",
    "reads back": "green",
    "logs in": "green",
    "comes back": "magenta",
    "thinks": "blue",
    "has gone": "dim",
}


class Quiet:
    """For programs: nothing before the end. Keeps the narration, which is part of the answer."""

    def __init__(self) -> None:
        self.began_ms = now_ms()
        # Each line, and how many milliseconds after the start it was said.
        self.said: list[tuple[int, str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        return

    def say(self, text: str) -> None:
        self.said.append((round(now_ms() - self.began_ms), text))

    def hear(self, told: Told) -> None:
        return

    def look(self, tabs: Sequence[wire.TabView]) -> None:
        return


class Plain(Quiet):
    """For pipes: a line of narration as soon as it is said."""

    def say(self, text: str) -> None:
        super().say(text)
        print(_stamped(*self.said[-1]), flush=True)


class Picture(Quiet):
    """For terminals: who does what, which tab is whose, and what has happened."""

    def __init__(self, agents: Sequence[str], cap: int) -> None:
        super().__init__()
        self._doing = dict.fromkeys(agents, "")
        self._cap = cap
        self._tabs: Sequence[wire.TabView] = ()
        self._recent: deque[tuple[int, str]] = deque(maxlen=LINES_SHOWN)
        self._mishaps = 0
        self._console = Console()
        self._live = Live(
            get_renderable=self.draw, refresh_per_second=PICTURES_PER_S, transient=True, console=self._console
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._live.stop()
        # The picture is gone; what was told stays.
        for line in self.said:
            print(_stamped(*line))

    def say(self, text: str) -> None:
        super().say(text)
        self._recent.append(self.said[-1])

    def hear(self, told: Told) -> None:
        match told:
            case Phase():
                self._doing[told.agent] = told.doing
            case Mishap():
                self._mishaps += 1
            case _:
                pass

    def look(self, tabs: Sequence[wire.TabView]) -> None:
        self._tabs = tabs

    def draw(self) -> RenderableType:
        """The picture as it is now."""
        across = Table.grid(padding=(0, 2))
        across.add_row(
            Panel(self._draw_agents(), title=f"{len(self._doing)} agents", border_style="dim"),
            Panel(self._draw_tabs(), title=f"{self._cap} tabs", border_style="dim"),
        )
        lines = "\n".join(_stamped(*line) for line in self._recent)
        met = f"{self._mishaps} mishap{'' if self._mishaps == 1 else 's'} met and survived"
        text = Text(lines, no_wrap=True, overflow="ellipsis")
        told = Panel(text, title="what happens", subtitle=met, border_style="dim", height=LINES_SHOWN + 2)
        return Group(across, told)

    def _draw_agents(self) -> Table:
        grid = Table.grid(padding=(0, 2))
        names = list(self._doing)
        columns = max(1, (self._console.width - TABS_WIDTH) // AGENT_WIDTH)
        rows = math.ceil(len(names) / columns)
        for row in range(rows):
            grid.add_row(*(self._draw_agent(name) for name in names[row::rows]))
        return grid

    def _draw_agent(self, name: str) -> Text:
        doing = self._doing[name]
        return Text.assemble((f"{name} ", "bold"), (doing.ljust(DOING_WIDTH), COLOURS.get(doing, "")))

    def _draw_tabs(self) -> Table:
        grid = Table.grid(padding=(0, 1))
        shown = sorted(self._tabs, key=lambda tab: tab.tab_id)[: self._cap]
        for number in range(self._cap):
            if number >= len(shown):
                grid.add_row(Text(f"{number + 1}", style="dim"), Text("free", style="dim"), " " * DOING_WIDTH)
                continue
            tab = shown[number]
            holder = tab.holder.kind or tab.holder.reason if tab.holder is not None else tab.state
            waiting = f" +{len(tab.waiters)} wait" if tab.waiters else ""
            grid.add_row(
                Text(f"{number + 1}", style="dim"),
                Text(tab.agent_id, style="bold green"),
                Text(f"{holder}{waiting}".ljust(DOING_WIDTH)),
            )
        return grid


def stage_for(agents: Sequence[str], cap: int, *, as_json: bool) -> Quiet:
    """A picture on a terminal, lines in a pipe, nothing for programs."""
    if as_json:
        return Quiet()
    return Picture(agents, cap) if sys.stdout.isatty() else Plain()


def show_verdicts(verdicts: Sequence[Verdict]) -> None:
    """The table at the end."""
    if not sys.stdout.isatty():
        width = max(len(each.guarantee) for each in verdicts)
        for each in verdicts:
            print(f"{'held  ' if each.held else 'BROKEN'}  {each.guarantee.ljust(width)}  {each.evidence}")
        return
    table = Table("", "guarantee", "evidence, recounted", box=None, pad_edge=False, header_style="dim")
    for each in verdicts:
        mark = Text("held", style="green") if each.held else Text("BROKEN", style="bold red")
        table.add_row(mark, Text(each.guarantee, style="bold"), Text(each.evidence))
    Console().print(table)


def _stamped(at_ms: int, text: str) -> str:
    return f"{at_ms / 1000:6.1f} s  {text}"

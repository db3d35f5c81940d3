"""Structured logs, JSON for machines or console for people, that never carry a token.

What a line is about (requestId, agentId, sessionId, tabId, commandId) is bound once per asyncio task with `bind` and
added to every line logged below it, also by libraries that use the standard `logging`. Redaction works on the
finished line, so no nesting, traceback or third-party message can carry a credential past it. A line that cannot be
written is lost, and whoever logged it goes on.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Final, Literal, TextIO, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

# One variable for all fields: a request pays for a single set.
_context: ContextVar[Mapping[str, str]] = ContextVar("tabherd_log_context", default=MappingProxyType({}))

# Credentials in URLs (`token=`, `ticket=`, `csrf=`, a ticket as a path, a password before the host), an Authorization
# header in any notation, a login's cookie, and our own tokens wherever they stand. The values stop before quotes and
# backslashes, so that a JSON line stays JSON. A password may have any other mark in it, and ends at the last @.
_SECRET: Final = re.compile(
    r"""(?P<keep>
            \b(?:token|ticket|csrf)=
          | /devtools/browser/
          | \btabherd_[0-9a-f]{12}=
          | \b(?:authorization|token)\\?["']?\s*[:=,]\s*[\[(]?(?:b(?=["']))?\\?["']?(?:(?:bearer|basic)\s+)?
          | \bbearer\s+
        )
        [^\s"'\\&#,;)\]}@?]+
      | (?P<user>://[^\s"'\\/:@]*:)[^\s"'\\/]+(?=@)
      | \bth_[A-Za-z0-9_-]{43}
    """,
    re.IGNORECASE | re.VERBOSE,
)


class _Sink:
    """Where lines go, and no error comes from: whoever logs has something to do that must not end for a full disk."""

    def __init__(self, target: TextIO) -> None:
        self._target = target

    def write(self, text: str) -> None:
        # The line is lost. It would be told here, too.
        with suppress(OSError):
            self._target.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._target.flush()


def get_logger(name: str) -> FilteringBoundLogger:
    """The logger of a module; usable before `configure`."""
    return cast(FilteringBoundLogger, structlog.get_logger(component=name))


def bind(**fields: str) -> None:
    """Add fields (in wire spelling) to every line this asyncio task, and those it starts, will log."""
    _context.set({**_context.get(), **fields})


def redact(text: str) -> str:
    """The text with every credential in it replaced."""
    return _SECRET.sub(lambda found: (found["keep"] or found["user"] or "") + "[redacted]", text)


def configure(
    log_format: Literal["auto", "json", "console"] = "auto", level: str = "info", stream: TextIO | None = None
) -> None:
    """Set the process's logging up, once, at its start. Lines go to standard error unless told otherwise."""
    target = sys.stderr if stream is None else stream
    sink = cast(TextIO, _Sink(target))
    is_console = log_format == "console" or (log_format == "auto" and target.isatty())
    render: Processor = (
        # Without the values of variables, which its usual tracebacks show: passwords would be among them.
        structlog.dev.ConsoleRenderer(colors=target.isatty(), exception_formatter=structlog.dev.plain_traceback)
        if is_console
        else structlog.processors.JSONRenderer()
    )
    describe: list[Processor] = [
        _add_context,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="timestamp"),
    ]
    # The console renderer formats tracebacks by itself.
    finish: list[Processor] = ([] if is_console else [structlog.processors.format_exc_info]) + [render, _redact_line]
    threshold = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=describe + finish,
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(sink),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sink)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=describe,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *finish],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # Libraries say at info what interests only their authors.
    root.setLevel(max(threshold, logging.WARNING))


def _add_context(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    for key, value in _context.get().items():
        event.setdefault(key, value)
    return event


def _redact_line(logger: WrappedLogger, method: str, line: Any) -> Any:
    return redact(line)

"""configuration.md, from the structs of `tabherd.config` and the comments above their fields."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

import msgspec

from tabherd import config
from tabherd.broker.settings import NEEDS_RESTART

from .markdown import row, table
from .structs import default, field_comments, type_and_bounds


def write() -> Iterator[str]:
    yield from (
        "# Configuration",
        "",
        "Settings come from a TOML file (`--config`, or `TABHERD_CONFIG`), then the environment",
        "(`TABHERD_<SECTION>__<KEY>`, such as `TABHERD_SERVER__PORT=8000` or `TABHERD_POOLS__DEFAULT__MAX_ACTIVE=8`),",
        "then flags; the later wins. A key that does not exist is refused, and the nearest one that does is named.",
        "Without a named file, `tabherd.toml` in the state directory is read, if it is there.",
        "",
        "The column *live* says whether a [running server follows](../how-to/change-settings.md) a change; *restart*",
        "means that it takes one.",
        "",
        "Variables that are not settings: " + ", ".join(f"`{name}`" for name in sorted(config.ENV_RESERVED)) + ".",
    )
    sections = {"": config.Config, **dict(_sections())}
    comments = field_comments(config)
    for prefix, section in sections.items():
        fields = [field for field in msgspec.structs.fields(section) if prefix or not _is_section(field.type)]
        yield from ("", f"## {f'[{prefix}]' if prefix else 'Top level'}", "")
        yield from table("key", "type", "default", "bounds", "live", "meaning")
        for field in fields:
            kind, bounds = type_and_bounds(field.type)
            yield row(
                f"`{field.name}`",
                kind,
                default(field),
                bounds,
                "restart" if field.name in NEEDS_RESTART.get(prefix.partition(".")[0], ()) else "yes",
                comments.get((section.__name__, field.name), ""),
            )


def _sections() -> Iterator[tuple[str, type[msgspec.Struct]]]:
    for field in msgspec.structs.fields(config.Config):
        if isinstance(field.type, type) and issubclass(field.type, config.Section):
            yield field.name, field.type
        elif _is_section(field.type):
            yield f"{field.name}.NAME", typing.get_args(field.type)[1]


def _is_section(kind: Any) -> bool:
    candidates = (kind, *typing.get_args(kind))
    return any(isinstance(each, type) and issubclass(each, config.Section) for each in candidates)

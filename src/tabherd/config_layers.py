"""Where settings come from: the file, then the environment, then flags; the later wins.

The environment and the flags are as they were at the start; the file may change while a server runs. What it keeps:
a key that the environment or a flag sets is never changed by the file; a limit or lifetime of `KEPT` that the file
does not name, or names as zero, stays what it is (at a start: its default).
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from .config import ENV_PREFIX, ENV_RESERVED, Config, Pool, Section, parse, state_dir
from .errors import InvalidRequest
from .toml_edit import merged

# The file in the state directory that is read when none is named, if it is there.
DEFAULT_FILE: Final = "tabherd.toml"
# Sections whose limits and lifetimes a reload keeps where the file says zero or nothing.
KEPT: Final = ("scheduler", "retention")

Tree: TypeAlias = dict[str, Any]
Source: TypeAlias = Literal["flag", "environment", "file", "kept", "default"]


class Override(msgspec.Struct, frozen=True):
    """A value that wins over the file's."""

    # Dotted: server.port.
    name: str
    value: Any
    source: Literal["flag", "environment"]
    # The variable or flag, as an operator knows it.
    origin: str


class Layers(msgspec.Struct, frozen=True, kw_only=True):
    """All that the settings of one server are made of, except what the file says."""

    # None: there is no file, and never will be.
    path: Path | None = None
    # Whether the file must exist: it was named by somebody.
    is_named: bool = False
    # In the order in which they win.
    overrides: tuple[Override, ...] = ()

    def read(self) -> Config:
        """The settings with the file as it is now; a typed error names the key that is wrong."""
        return self.config_of(self.tree_of(self.content()))

    def content(self) -> bytes | None:
        """What the file holds; None when there is none and none is needed."""
        if self.path is None:
            return None
        try:
            return self.path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            if not self.is_named:
                return None
            raise InvalidRequest(f"Configuration file {self.path} does not exist.", field="config") from None
        except OSError as error:
            raise self._unreadable(error) from None

    def tree_of(self, content: bytes | None) -> Tree:
        """What such a file says."""
        try:
            return tomllib.loads((content or b"").decode())
        except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
            raise self._unreadable(error) from None

    def config_of(self, tree: Tree, current: Config | None = None) -> Config:
        """The settings with such a file, in a server in which those are in force."""
        if current is not None:
            kept = {name: {key: getattr(getattr(current, name), key) for key in keys} for name, keys in kept_keys()}
            tree = merged(kept, without_zeros(tree))
        else:
            tree = without_zeros(tree)
        for each in self.overrides:
            _place(tree, each)
        return parse(tree)

    def override_of(self, name: str) -> Override | None:
        """What sets that key over the file; also for a table (pools.default) in which one key is so set."""
        return next(
            (each for each in reversed(self.overrides) if each.name == name or each.name.startswith(f"{name}.")), None
        )

    def _unreadable(self, error: Exception) -> InvalidRequest:
        return InvalidRequest(f"Configuration file {self.path} cannot be read: {error}.", field="config")


def layers_of(
    path: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    flags: Mapping[str, Any] | None = None,
) -> Layers:
    """The layers of a server that is started like this. Flags have dotted names (`server.port`)."""
    named = path or (Path(name) if (name := environ.get("TABHERD_CONFIG")) else None)
    variables = (
        Override(name.removeprefix(ENV_PREFIX).lower().replace("__", "."), value, "environment", name)
        for name, value in sorted(environ.items())
        if name.startswith(ENV_PREFIX) and name not in ENV_RESERVED
    )
    switches = (Override(name, value, "flag", name) for name, value in (flags or {}).items())
    return Layers(
        path=(named or state_dir(environ) / DEFAULT_FILE).absolute(),
        is_named=named is not None,
        overrides=(*variables, *switches),
    )


def load(
    path: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    flags: Mapping[str, Any] | None = None,
) -> Config:
    """File, then environment, then flags (dotted names: `server.port`). A typed error names the key that is wrong."""
    return layers_of(path, environ, flags).read()


def named_values(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting of the tree by its dotted name; a table that is one setting's value stays whole."""
    return dict(_named_values(tree))


def _named_values(tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for section, below in tree.items():
        if not isinstance(below, Mapping):
            yield section, below
            continue
        for key, value in below.items():
            if section == "pools" and isinstance(value, Mapping):
                yield from ((f"pools.{key}.{name}", setting) for name, setting in value.items())
            else:
                yield f"{section}.{key}", value


@cache
def kept_keys() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """By section, the keys for which zero means: as it is. Where zero has a meaning of its own, it keeps that."""
    sections = {field.name: field.type for field in msgspec.structs.fields(Config)}
    return tuple((name, tuple(_positive(sections[name]))) for name in KEPT)


def _positive(section: type[Section]) -> Iterator[str]:
    about = msgspec.inspect.type_info(section)
    assert isinstance(about, msgspec.inspect.StructType)
    for field in about.fields:
        if isinstance(field.type, msgspec.inspect.IntType) and (field.type.ge or 0) > 0:
            yield field.name


def without_zeros(tree: Mapping[str, Any]) -> Tree:
    """The tree without those zeros that mean: as it is."""
    result = dict(tree)
    for name, keys in kept_keys():
        if isinstance(section := result.get(name), Mapping):
            result[name] = {key: value for key, value in section.items() if not (key in keys and _is_zero(value))}
    return result


def _is_zero(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == 0


def _place(tree: Tree, override: Override) -> None:
    keys = override.name.split(".")
    for depth, key in enumerate(keys[:-1], start=1):
        # A copy, since the tree below may be somebody else's.
        branch = tree.get(key, {})
        if not isinstance(branch, dict):
            raise InvalidRequest(
                f"{override.source} {override.origin}: {'.'.join(keys[:depth])} is a value, not a section.",
                field=override.name,
            )
        tree[key] = branch = dict(branch)
        tree = branch
    is_text = override.source == "environment" and isinstance(override.value, str)
    tree[keys[-1]] = _split(override.value) if is_text and override.name in _lists(keys) else override.value


def _split(text: str) -> list[str]:
    """A list as the environment spells it."""
    return [item for part in text.split(",") if (item := part.strip())]


def _lists(keys: Sequence[str]) -> frozenset[str]:
    """The dotted names of settings that are lists, in the section that the keys lead to."""
    if len(keys) < 2:
        return frozenset()
    section = Pool if keys[0] == "pools" else _sections().get(keys[0])
    prefix = ".".join(keys[:-1])
    return frozenset() if section is None else frozenset(f"{prefix}.{name}" for name in _list_fields(section))


@cache
def _sections() -> Mapping[str, type[Section]]:
    found = {field.name: field.type for field in msgspec.structs.fields(Config)}
    return {name: kind for name, kind in found.items() if isinstance(kind, type) and issubclass(kind, Section)}


@cache
def _list_fields(section: type[Section]) -> tuple[str, ...]:
    about = msgspec.inspect.type_info(section)
    assert isinstance(about, msgspec.inspect.StructType)
    lists = (msgspec.inspect.ListType, msgspec.inspect.VarTupleType)
    return tuple(field.name for field in about.fields if isinstance(field.type, lists))

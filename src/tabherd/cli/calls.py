"""The commands that are one request each: commands on tabs, draining."""

from __future__ import annotations

import base64
import binascii
import difflib
import re
import typing
from pathlib import Path
from typing import Any

import msgspec

from .. import wire
from ..client import dialogs
from ..client.sync import Tabherd
from ..errors import InvalidRequest, UnknownField
from .output import Voice, printable

PARAM = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_]*)(?P<how>:?=)(?P<value>.*)", re.DOTALL)


def parse_params(kind: str, words: list[str]) -> dict[str, Any]:
    """`key=value` and `key:=json` as the fields of that action.

    Raises ValueError for a word that is neither, `UnknownField` for a name that the action does not have.

    A plain value takes the type that the action gives the field (`fullPage=true` is a boolean, `expression=1` a
    string). One that does not fit is sent as it stands, so that there is one judge of values: the server.
    """
    fields: dict[str, Any] = {}
    for word in words:
        found = PARAM.fullmatch(word)
        if found is None:
            raise ValueError(f"'{word}' is neither KEY=VALUE nor KEY:=JSON.")
        name, how, value = found.group("name", "how", "value")
        if how == "=":
            fields[name] = value
            continue
        try:
            fields[name] = msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise ValueError(f"'{word}': the value is not JSON: {error}.") from None
    struct = next((each for each in typing.get_args(wire.AnyAction) if each.__struct_config__.tag == kind), None)
    if struct is None:
        return fields
    types = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
    for name in fields.keys() - types.keys():
        close = difflib.get_close_matches(name, types, n=1)
        raise UnknownField(
            f"Unknown field '{name}'" + (f"; did you mean '{close[0]}'?" if close else "."),
            action=f"The fields of {kind}: {', '.join(types)}.",
            field=name,
            nearest=close[0] if close else None,
        )
    return {name: _typed(value, types[name]) for name, value in fields.items()}


def _typed(value: Any, kind: Any) -> Any:
    try:
        return msgspec.to_builtins(msgspec.convert(value, kind, strict=False))
    except msgspec.ValidationError:
        return value


def act(voice: Voice, tab_id: str, kind: str, fields: dict[str, Any], out: Path | None) -> None:
    with Tabherd(patience_s=0) as herd:
        command = herd.act(tab_id, kind, **fields)
    voice.note(dialogs.of_command(command))
    if out is None:
        text = readable(command.result)
        # A program gets every character; a terminal none that it would obey.
        voice.answer(command, text if voice.width is None else printable(text))
        return
    size = write_result(out, command.result)
    voice.answer({"commandId": command.command_id, "file": str(out)}, f"Wrote {size} bytes to {out}.")


def drain(voice: Voice, *, resume: bool) -> None:
    with Tabherd(patience_s=0) as herd:
        told = herd.undrain() if resume else herd.drain()
    what = "Draining: no new session is admitted" if told.draining else "New sessions are admitted again"
    voice.answer(told, f"{what}; open sessions: {told.sessions}.")


def readable(result: Any) -> str:
    """A result as it is printed for people."""
    match result:
        case None:
            return ""
        case str():
            return result
        case _:
            return msgspec.json.format(msgspec.json.encode(result)).decode()


def write_result(out: Path, result: Any) -> int:
    """Write a result that is a file; how many bytes it has."""
    image = _image(result)
    try:
        out.write_bytes(image)
    except OSError as error:
        raise InvalidRequest(f"{out} cannot be written: {error.strerror}.", field="out") from None
    return len(image)


def _image(result: Any) -> bytes:
    try:
        return base64.b64decode(result, validate=True)
    except (TypeError, binascii.Error, ValueError):
        raise InvalidRequest("The result is not a file.", field="out") from None

"""From bytes to wire structs: whatever is wrong with a body or a query is a typed error that names the field.

Nothing that a caller can send raises anything else: malformed JSON, bad UTF-8, absurd nesting, a wrong type, a value
out of bounds, a missing field, an unknown one (the nearest known is named), an action that does not exist (those that
do are listed). An empty body reads as `{}`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, Final, NoReturn, get_args
from urllib.parse import parse_qsl

import msgspec

from ..errors import InvalidRequest, UnknownAction, UnknownField
from ..wire import ACTION_KINDS

# A query with more parameters than this is not one of ours.
QUERY_FIELDS_MAX: Final = 50
_WHERE: Final = re.compile(r"(?P<what>.*) - at `\$(?:\.(?P<where>.*))?`", re.DOTALL)
_QUOTED: Final = re.compile(r"`(?P<name>.*)`", re.DOTALL)


class BodyDecoder:
    """Decodes bodies of one request type, which may be a union of actions."""

    def __init__(self, request: Any) -> None:
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(request)
        members: tuple[type[msgspec.Struct], ...] = get_args(request) or (request,)
        # By tag (None outside unions): the fields in wire spelling.
        self._fields = {member.__struct_config__.tag: _wire_names(member) for member in members}

    def decode(self, body: bytes | bytearray) -> Any:
        """The request, or a typed error."""
        try:
            return self._decoder.decode(body or b"{}")
        except msgspec.ValidationError as error:
            _refuse(error, self._known(body))
        except msgspec.DecodeError as error:
            raise InvalidRequest(f"The body is not valid JSON: {error}.", field="body") from None
        except UnicodeDecodeError:
            raise InvalidRequest("The body is not valid JSON: a string is not UTF-8.", field="body") from None
        except RecursionError:
            raise InvalidRequest("The body is nested too deeply.", field="body") from None

    def _known(self, body: bytes | bytearray) -> Iterable[str]:
        """The fields this body may have: for an action, those of its kind."""
        if len(self._fields) == 1:
            return next(iter(self._fields.values()))
        try:
            kind = msgspec.json.decode(body, type=_Kind).kind
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # What was refused first stands; the rest of the body is no better.
            return ()
        return ("kind", *self._fields.get(kind, ()))


class QueryDecoder:
    """Decodes query strings into one struct, whose values are text until converted."""

    def __init__(self, query: type[msgspec.Struct]) -> None:
        self._query = query
        self._names = _wire_names(query)
        # Most requests have no query; every parameter is optional, so they can share one value.
        self._empty = query()

    def decode(self, query: bytes) -> Any:
        """The query, or a typed error."""
        if not query:
            return self._empty
        values: dict[str, str] = {}
        try:
            pairs = parse_qsl(
                query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=QUERY_FIELDS_MAX
            )
        except ValueError:
            raise InvalidRequest("The query cannot be read.", field="query") from None
        for name, value in pairs:
            if name in values:
                raise InvalidRequest(f"The query has '{name[:100]}' more than once.", field=name[:100])
            if name not in self._names:
                _refuse_unknown(name, self._names)
            values[name] = value
        try:
            return msgspec.convert(values, self._query, strict=False)
        except msgspec.ValidationError as error:
            _refuse(error, self._names)


class _Kind(msgspec.Struct):
    """Only an action's kind, whatever else it has."""

    kind: str


def _wire_names(struct: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(struct))


def _refuse(error: msgspec.ValidationError, known: Iterable[str]) -> NoReturn:
    """Turn msgspec's sentence, which is stable and tested here, into a typed error."""
    text = str(error)
    located = _WHERE.fullmatch(text)
    what, where = (located["what"], located["where"] or "") if located else (text, "")
    quoted = _QUOTED.search(what)
    name = quoted["name"] if quoted else ""
    if what.startswith("Object contains unknown field"):
        _refuse_unknown(f"{where}.{name}" if where else name, () if where else known)
    if what.startswith("Invalid value") and where == "kind":
        given = what.removeprefix("Invalid value ").strip("'")
        close = difflib.get_close_matches(given, ACTION_KINDS, n=1)
        raise UnknownAction(
            f"There is no action {given[:100]!r}.",
            field="kind",
            nearest=close[0] if close else None,
            kinds=list(ACTION_KINDS),
        ) from None
    if what.startswith("Object missing required field"):
        field = f"{where}.{name}" if where else name
        raise InvalidRequest(f"The field '{field}' is missing.", field=field) from None
    raise InvalidRequest(f"{where or 'The body'}: {what}.", field=where or "body") from None


def _refuse_unknown(name: str, known: Iterable[str]) -> NoReturn:
    shown = name[:100]
    close = difflib.get_close_matches(shown, list(known), n=1)
    hint = f"; did you mean '{close[0]}'?" if close else "."
    raise UnknownField(f"Unknown field '{shown}'{hint}", field=shown, nearest=close[0] if close else None) from None

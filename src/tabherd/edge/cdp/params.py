"""Reads the parameters of a client's message, which may be any JSON, and refuses those of the wrong type.

What is read is kept in a fresh dictionary under the names that were asked for and no others, so that a parameter nobody
has judged does not reach Chromium. Null counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from ...actions.url_policy import allowed_url
from ...errors import InvalidRequest, PolicyDenied
from .verdict import SERVER_ERROR, Refused, denied, invalid

# Longest list that is gone through.
ITEMS_MAX: Final = 1_000

_T = TypeVar("_T")


class Params:
    """The parameters of one message."""

    __slots__ = ("_given", "kept")

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        # What has been read, as it goes to Chromium; the checks add to it and change it.
        self.kept: dict[str, Any] = {}

    def string(self, name: str) -> str | None:
        value: str | None = self._given.get(name)
        if value is not None and type(value) is not str:
            raise invalid(f"{name} must be a string")
        return self._keep(name, value)

    def needed(self, name: str) -> str:
        value = self.string(name)
        if value is None:
            raise invalid(f"{name} is required")
        return value

    def flag(self, name: str) -> bool:
        """False when it is absent."""
        value: bool | None = self._given.get(name)
        if value is not None and type(value) is not bool:
            raise invalid(f"{name} must be true or false")
        return bool(self._keep(name, value))

    def integer(self, name: str, lowest: int, highest: int) -> int | None:
        given: Any = self._given.get(name)
        value: int | None = int(given) if type(given) is float and given.is_integer() else given
        if value is not None and (type(value) is not int or not lowest <= value <= highest):
            raise invalid(f"{name} must be a whole number from {lowest} to {highest}")
        return self._keep(name, value)

    def number(self, name: str, lowest: float, highest: float) -> float | None:
        value: float | None = self._given.get(name)
        # Neither true nor false nor NaN is a number here.
        if value is not None and (type(value) not in (int, float) or not lowest <= value <= highest):
            raise invalid(f"{name} must be a number from {lowest:.0f} to {highest:.0f}")
        return self._keep(name, value)

    def items(self, name: str) -> list[Any]:
        """A list of anything; empty when it is absent."""
        value: list[Any] | None = self._given.get(name)
        if value is not None and (type(value) is not list or len(value) > ITEMS_MAX):
            raise invalid(f"{name} must be a list of at most {ITEMS_MAX} items")
        return self._keep(name, value) or []

    def strings(self, name: str) -> list[str]:
        items = self.items(name)
        if any(type(item) is not str for item in items):
            raise invalid(f"{name} must be a list of strings")
        return items

    def group(self, name: str) -> Params | None:
        """An object within; what is read of it is kept in it."""
        value = self._given.get(name)
        if value is None:
            return None
        within = params_of(name, value)
        self.kept[name] = within.kept
        return within

    def groups(self, name: str) -> list[Params]:
        """A list of objects; what is read of each is kept in it."""
        groups = [params_of(name, item) for item in self.items(name)]
        if name in self.kept:
            self.kept[name] = [group.kept for group in groups]
        return groups

    def url(self, name: str) -> None:
        """An address that a page may be sent to, kept as a browser reads it."""
        value = self.string(name)
        if value is not None:
            self.kept[name] = judged_url(value)

    def scalars(self, *names: str) -> None:
        """Keep strings, numbers and flags that name nothing; Chromium judges which of them it should have been."""
        for name in names:
            value = self._given.get(name)
            if value is not None and type(value) not in (str, bool, int, float):
                raise invalid(f"{name} must not be a list or an object")
            self._keep(name, value)

    def opaque(self, name: str) -> None:
        """Keep what reaches nothing, whatever is in it."""
        self._keep(name, self._given.get(name))

    def _keep(self, name: str, value: _T) -> _T:
        if value is not None:
            self.kept[name] = value
        return value


def params_of(name: str, value: Any) -> Params:
    if type(value) is not dict:
        raise invalid(f"{name} must be an object")
    return Params(value)


def judged_url(url: str) -> str:
    try:
        return allowed_url(url)
    except PolicyDenied as error:
        raise denied(f"{error.message} {error.action}") from error
    except InvalidRequest as error:
        # Chromium's own words for it.
        raise Refused(SERVER_ERROR, "Cannot navigate to invalid URL") from error

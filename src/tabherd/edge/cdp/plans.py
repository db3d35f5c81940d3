"""What is to be done with each method, looked up once per kind of session and remembered."""

from __future__ import annotations

import re
from typing import Final

from .rules import Kind, Rule, Tenancy, is_answer, rule_for

# Names that are remembered; there are about 700 methods, and clients can make up any number.
REMEMBERED_MAX: Final = 5_000
_METHOD: Final = re.compile(r"[A-Za-z]{1,60}\.[A-Za-z]{1,60}")


class Plan:
    """What becomes of one method in one kind of session."""

    __slots__ = ("is_answer", "is_known", "is_noted", "is_plain", "rule")

    def __init__(self, rule: Rule, *, is_known: bool = True, is_answer: bool = False, is_noted: bool = False) -> None:
        self.rule = rule
        # Whether it has the form of a method's name at all.
        self.is_known = is_known
        # Whether it passes also while somebody else holds the tab.
        self.is_answer = is_answer
        # Whether the tenant wants to know that it passed.
        self.is_noted = is_noted
        # Whether it passes, and there is nothing more to it.
        self.is_plain = rule is Rule.PASS and not is_noted


class Plans:
    """The plans of one kind of pool."""

    def __init__(self, tenancy: Tenancy, noted: frozenset[str]) -> None:
        self._tenancy = tenancy
        self._noted = noted
        self._plans: dict[Kind, dict[str, Plan]] = {kind: {} for kind in Kind}

    def find(self, kind: Kind, method: str) -> Plan:
        plan = self._plans[kind].get(method)
        return self._make(kind, method) if plan is None else plan

    def _make(self, kind: Kind, method: str) -> Plan:
        if not _METHOD.fullmatch(method):
            return Plan(Rule.DENY, is_known=False)
        plan = Plan(rule_for(kind, method, self._tenancy), is_answer=is_answer(method), is_noted=method in self._noted)
        known = self._plans[kind]
        if len(known) >= REMEMBERED_MAX:
            known.clear()
        known[method] = plan
        return plan

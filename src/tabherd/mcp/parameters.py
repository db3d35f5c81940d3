"""What each tool takes: one struct per tool, from which both its JSON schema and its decoder are made.

Whatever is wrong with a model's arguments is a typed error that names the field. Numbers that come as text are taken,
because models write them so; nothing else is guessed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from .. import wire
from ..errors import InvalidRequest, UnknownField

_WHERE: Final = re.compile(r"(?P<what>.*) - at `\$\.(?P<where>.*)`", re.DOTALL)
_QUOTED: Final = re.compile(r"`(?P<name>[^`]*)`")

TabId = Annotated[str, Meta(max_length=100, description="Needed when several tabs are open.")]
SessionId = Annotated[str, Meta(max_length=100, description="Needed when there are several.")]
Selector = Annotated[str, Meta(min_length=1, max_length=10_000, description="CSS, text=, role= or xpath=.")]
Ref = Annotated[str, Meta(min_length=1, max_length=500, description="As a snapshot shows it: [ref=...].")]
TimeoutMs = Annotated[int, Meta(ge=100, le=wire.DEADLINE_MAX_MS, description="Default 30000.")]
WaitMs = Annotated[int, Meta(ge=0, le=120_000, description="How long to wait for a place when all are taken.")]
Dialogs = Annotated[Literal["accept", "dismiss"], Meta(description="How alert, confirm, prompt are answered.")]
PromptText = Annotated[str, Meta(max_length=10_000, description="Accept a prompt with this.")]
Flag = Annotated[bool, Meta()]


class Parameters(msgspec.Struct, rename="camel", kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Arguments of a tool."""


class OnSession(Parameters, frozen=True, kw_only=True):
    session_id: SessionId | None = None


class OnTab(OnSession, frozen=True, kw_only=True):
    tab_id: TabId | None = None


class Command(OnTab, frozen=True, kw_only=True):
    timeout_ms: TimeoutMs | None = None


class OnElement(Command, frozen=True, kw_only=True):
    ref: Ref | None = None
    selector: Selector | None = None


class Lease(Parameters, frozen=True, kw_only=True):
    url: Annotated[str, Meta(max_length=65_536, description="First page.")] | None = None
    pool: Annotated[wire.Name, Meta(description="Pool to lease from.")] | None = None
    key: Annotated[wire.Name, Meta(description="Bucket it counts against, such as a vendor.")] | None = None
    tier: Annotated[wire.Name, Meta(description="Named deadline: instant, default, pro or deep.")] | None = None
    # Shorter than the minute after which many clients give a call up.
    wait_ms: WaitMs = 20_000
    session_id: (
        Annotated[str, Meta(max_length=100, description="Instead of a new one, a session of yours that is open.")]
        | None
    ) = None


class Navigate(Command, frozen=True, kw_only=True):
    url: Annotated[str, Meta(min_length=1, max_length=2_000_000, description="Address, or: back, forward, reload.")]
    wait_until: wire.WaitUntil | None = None


class Snapshot(OnElement, frozen=True, kw_only=True):
    interactive: Annotated[bool, Meta(description="Only what can be acted upon.")] = False
    full: Annotated[bool, Meta(description="All of it, however long.")] = False


class Click(OnElement, frozen=True, kw_only=True):
    button: Literal["left", "right", "middle"] | None = None
    double: Flag = False
    modifiers: Annotated[list[wire.Modifier], Meta(max_length=4, description="Keys held down.")] | None = None
    dialogs: Dialogs | None = None
    prompt_text: PromptText | None = None


class Type(OnElement, frozen=True, kw_only=True):
    text: Annotated[str, Meta(max_length=100_000)]


class Fill(OnElement, frozen=True, kw_only=True):
    value: Annotated[str, Meta(max_length=1_000_000)]


class Press(OnElement, frozen=True, kw_only=True):
    key: Annotated[str, Meta(min_length=1, max_length=100, description="Such as Enter, a, Shift+Tab, Control+A.")]
    dialogs: Dialogs | None = None
    prompt_text: PromptText | None = None


class Select(OnElement, frozen=True, kw_only=True):
    values: Annotated[
        list[Annotated[str, Meta(max_length=10_000)]], Meta(max_length=1_000, description="Values or labels.")
    ]


class Drag(Command, frozen=True, kw_only=True):
    from_: Annotated[str, Meta(min_length=1, max_length=10_000, description="Selector, or ref=...")] = msgspec.field(
        name="from"
    )
    to: Annotated[str, Meta(min_length=1, max_length=10_000, description="The same.")]


class Upload(OnElement, frozen=True, kw_only=True):
    files: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=1_000)]],
        Meta(max_length=100, description="Names of files of the session, such as downloads. None clears."),
    ]


class Wait(OnElement, frozen=True, kw_only=True):
    text: Annotated[str, Meta(min_length=1, max_length=10_000, description="Text that becomes visible.")] | None = None
    url: (
        Annotated[str, Meta(min_length=1, max_length=10_000, description="Part of the address; * fits anything.")]
        | None
    ) = None
    ms: Annotated[int, Meta(ge=0, le=wire.DEADLINE_MAX_MS, description="Just so long.")] | None = None
    function: Annotated[str, Meta(min_length=1, description="JavaScript that becomes true.")] | None = None
    state: (
        Annotated[
            Literal["attached", "detached", "visible", "hidden"],
            Meta(description="What the element is to be; visible by default."),
        ]
        | None
    ) = None


class Evaluate(Command, frozen=True, kw_only=True):
    expression: Annotated[str, Meta(min_length=1, description="JavaScript; promises are awaited.")]
    args: Annotated[list[Any], Meta(description="Makes expression a function, called with these.")] | None = None
    dialogs: Dialogs | None = None
    prompt_text: PromptText | None = None


class Screenshot(OnElement, frozen=True, kw_only=True):
    full_page: Flag = False


class Pdf(Command, frozen=True, kw_only=True):
    landscape: Flag = False
    background: Annotated[bool, Meta(description="With background colours.")] = False
    pages: Annotated[str, Meta(max_length=1_000, description="Like 1-3, 5; all by default.")] | None = None


class Files(OnSession, frozen=True, kw_only=True):
    name: Annotated[str, Meta(max_length=1_000, description="Instead, read this one, if it is text.")] | None = None


class Tabs(OnTab, frozen=True, kw_only=True):
    action: Literal["list", "new", "close"] = "list"
    url: Annotated[str, Meta(max_length=65_536, description="First page of a new tab.")] | None = None


class Handoff(OnTab, frozen=True, kw_only=True):
    by: Annotated[wire.Name, Meta(description="Who takes it over.")] | None = None
    resume: Annotated[bool, Meta(description="Instead, take the tab back from them.")] = False


def _plain(field: dict[str, Any]) -> dict[str, Any]:
    """Without null, which no caller needs to send, and without bounds, which few read and a refusal names."""
    kinds = [kind for kind in field.get("anyOf", ()) if kind != {"type": "null"}]
    merged = {**(kinds[0] if kinds else {}), **{key: value for key, value in field.items() if key != "anyOf"}}
    dropped = {"maxLength", "minLength", "maxItems", "maximum", "minimum", "pattern"}
    if merged.get("default") is None:
        dropped.add("default")
    plain = {key: value for key, value in merged.items() if key not in dropped}
    if "items" in plain:
        plain["items"] = _plain(plain["items"])
    return plain


def _step_schema() -> dict[str, Any]:
    """What a step may have: its kind, and what the actions take."""
    common = {each.encode_name for each in msgspec.structs.fields(wire.Action)}
    _, components = msgspec.json.schema_components(wire.ACTIONS.values())
    fields: dict[str, Any] = {"kind": {"enum": [*wire.ACTION_KINDS]}}
    for action in wire.ACTIONS.values():
        for name, field in components[action.__name__]["properties"].items():
            if name not in common and name != "kind":
                fields[name] = _merged(fields.get(name, {}), _plain(field))
    # The only ones that have parts themselves.
    fields["cookies"]["items"] = {"type": "object"}
    return {"properties": fields, "required": ["kind"]}


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """What fits either of them, without what holds for one only."""
    both = {key: value for key, value in {**other, **one}.items() if key in ("type", "enum", "items")}
    return both | ({"enum": sorted({*one["enum"], *other["enum"]})} if "enum" in one and "enum" in other else {})


Step = Annotated[dict[str, Any], Meta(extra_json_schema=_step_schema())]


class SubmitTask(Parameters, frozen=True, kw_only=True):
    action: Annotated[str, Meta(max_length=100, description="The kind of a single step.")] | None = None
    params: Annotated[dict[str, Any], Meta(description="The rest of that step.")] | None = None
    steps: Annotated[list[Step], Meta(max_length=100, description="Instead, several.")] | None = None
    tab_id: Annotated[str, Meta(max_length=100, description="Your tab; else a fresh page.")] | None = None
    priority: Annotated[int, Meta(description="Lower goes first.")] | None = None
    deadline_ms: Annotated[int, Meta(ge=1, le=wire.DEADLINE_MAX_MS, description="Default 60000.")] | None = None
    idempotent: Flag = False


class LookAtTask(Parameters, frozen=True, kw_only=True):
    task_id: Annotated[str, Meta(max_length=100)]
    # Shorter than the minute after which many clients give a call up.
    wait_ms: Annotated[int, Meta(ge=0, le=30_000)] = 20_000
    cancel: Flag = False


AnyParameters = TypeVar("AnyParameters", bound=Parameters)


def read(arguments: Mapping[str, Any] | None, kind: type[AnyParameters]) -> AnyParameters:
    """The arguments of a call, or a typed error that names the field."""
    try:
        return msgspec.convert(arguments or {}, kind, strict=False)
    except msgspec.ValidationError as error:
        # msgspec's sentences are stable, and the tests would notice if they were not.
        text = str(error)
        located = _WHERE.fullmatch(text)
        what, where = (located["what"], located["where"]) if located else (text, "")
        quoted = _QUOTED.search(what)
        name = quoted["name"][:100] if quoted else ""
        if what.startswith("Object contains unknown field"):
            known = [field.encode_name for field in msgspec.structs.fields(kind)]
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean '{close[0]}'?" if close else f"; there are: {', '.join(known)}."
            raise UnknownField(f"Unknown argument '{name}'{hint}", field=name, known=known) from None
        if what.startswith("Object missing required field"):
            raise InvalidRequest(f"The argument '{name}' is missing.", field=name) from None
        choices = _choices(kind, where) if what.startswith("Invalid enum value") else []
        hint = f"; there are: {', '.join(choices)}" if choices else ""
        raise InvalidRequest(f"{where or 'arguments'}: {what}{hint}.", field=where or "arguments") from None


def _choices(kind: type[Parameters], where: str) -> list[str]:
    """What the field at that place can be, if the schema says so."""
    field = schema_of(kind)["properties"].get(where.partition("[")[0], {})
    found: list[str] = field.get("items", field).get("enum", [])
    return found


def schema_of(kind: type[Parameters]) -> dict[str, Any]:
    """The JSON schema of a tool's arguments, as short as it can be: models read it with every call."""
    (_,), components = msgspec.json.schema_components([kind])
    schema = components[kind.__name__]
    properties = {name: _plain(field) for name, field in schema["properties"].items()}
    required = {"required": schema["required"]} if schema["required"] else {}
    return {"type": "object", "properties": properties, **required, "additionalProperties": False}

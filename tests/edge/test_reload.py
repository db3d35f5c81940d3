"""Reloading: by file, by signal and through the interface; what is refused changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import structlog

from tabherd import wire
from tabherd.broker.events import EventBus
from tabherd.broker.settings import Changes, Settings
from tabherd.config import Config
from tabherd.config_layers import Layers, layers_of
from tabherd.edge.http import App
from tabherd.edge.reload import MASK, TOLD_MAX_CHARS, Reload, told_names
from tabherd.errors import InvalidRequest, StateConflict, UnknownField

from .conftest import client_of
from .fake_broker import FakeBroker


class Desk:
    """A server's settings and its file, which is there from the start."""

    def __init__(
        self, directory: Path, text: str = "", environ: Mapping[str, str] | None = None, flags: Any = None
    ) -> None:
        self.file = directory / "tabherd.toml"
        self.file.write_text(text)
        layers = layers_of(self.file, environ or {}, flags)
        self.events = EventBus(epoch=1, ring=100)
        self.settings = Settings(layers.read())
        self.reload = Reload(self.settings, layers, self.events)
        self._told = self.events.subscribe()

    @property
    def now(self) -> Config:
        return self.settings.current

    async def patch(self, **patch: Any) -> Changes:
        return await self.reload.patch(wire.ConfigPatch(**patch))

    def news(self) -> list[dict[str, Any]]:
        """What was told since the last time."""
        told: list[dict[str, Any]] = []
        while (event := self._told.take()) is not None:
            told.append({"type": event.type, **event.fields})
        return told


class Looks:
    """The pauses between two looks at the file, which end when the test says so."""

    def __init__(self, reload: Reload) -> None:
        self._begun = asyncio.Semaphore(0)
        self._ended = asyncio.Semaphore(0)
        self.watching = asyncio.ensure_future(reload.watch(self._pause))

    async def _pause(self) -> None:
        self._ended.release()
        await self._begun.acquire()

    async def look(self, times: int = 1) -> None:
        """Returns when so many looks have been taken, with all that came of them."""
        for _ in range(times):
            await self._ended.acquire()
            self._begun.release()
        await self._ended.acquire()
        self._ended.release()

    async def end(self) -> None:
        self.watching.cancel()
        with suppress(asyncio.CancelledError):
            await self.watching


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, "[gate]\ntimeout_ms = 1000  # ours\n")


@pytest.fixture
async def looks(desk: Desk) -> Any:
    await desk.reload.reload("file")
    looks = Looks(desk.reload)
    yield looks
    await looks.end()


# --- By file ----------------------------------------------------------------------------------------------------


async def test_a_file_that_changed_is_in_force_at_the_second_look(desk: Desk, looks: Looks) -> None:
    desk.file.write_text("[gate]\ntimeout_ms = 20000\n")
    await looks.look()
    assert desk.now.gate.timeout_ms == 1_000
    with structlog.testing.capture_logs() as logs:
        await looks.look()
    assert desk.now.gate.timeout_ms == 20_000
    told = {"changed": ["gate.timeout_ms"], "needsRestart": [], "cause": "file"}
    assert desk.news() == [{"type": "config_reloaded", **told}]
    (line,) = logs
    assert line.items() >= {"event": "configuration changed", "log_level": "info", "cause": "file"}.items()
    assert (list(line["changed"]), list(line["needsRestart"])) == (["gate.timeout_ms"], [])


async def test_what_the_file_sets_is_said_to_be_its_own_before_it_is_watched(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "[tiers]\nnight = 70\n")
    assert desk.reload.view().sources["tiers.night"] == "file"


async def test_a_file_that_is_still_being_written_is_left_alone(desk: Desk, looks: Looks) -> None:
    for text in ("[server]\n", "[server]\ndrain_s = 1\n", "[server]\ndrain_s = 12\n[gate]\n"):
        # Each is valid by itself, and none is what is meant.
        desk.file.write_text(text)
        await looks.look()
    assert (desk.now.gate.timeout_ms, desk.now.server.drain_s) == (1_000, 30)
    await looks.look()
    assert desk.now.server.drain_s == 12


async def test_a_file_that_is_replaced_is_found(desk: Desk, looks: Looks) -> None:
    draft = desk.file.with_name("draft")
    draft.write_text("[gate]\ntimeout_ms = 2000\n")
    draft.replace(desk.file)
    await looks.look(2)
    assert desk.now.gate.timeout_ms == 2_000


@pytest.mark.parametrize("text", ["[gate", "[gate]\ntimeout_ms = -1\n", "[gat]\n", "[gate]\ntimeout_ms = 5\n"])
async def test_a_file_that_is_not_valid_is_refused_whole_and_told_once(desk: Desk, looks: Looks, text: str) -> None:
    before = desk.now
    desk.file.write_text("[server]\ndrain_s = 1\n" + text)
    with structlog.testing.capture_logs() as logs:
        await looks.look(5)
    assert desk.now is before
    (event,) = desk.news()
    assert event["type"] == "config_refused"
    assert desk.reload.view().refused == event["reason"]
    (line,) = logs
    assert (line["event"], line["log_level"]) == ("configuration refused", "warning")
    assert (line["reason"], line["cause"]) == (event["reason"], "file")


async def test_a_refused_file_is_tried_again_when_it_changes(desk: Desk, looks: Looks) -> None:
    desk.file.write_text("[gate")
    await looks.look(2)
    desk.file.write_text("[gate]\ntimeout_ms = 2000\n")
    await looks.look(2)
    assert desk.now.gate.timeout_ms == 2_000
    assert desk.reload.view().refused is None


async def test_a_named_file_that_vanishes_changes_nothing(desk: Desk, looks: Looks) -> None:
    desk.file.unlink()
    await looks.look(2)
    assert desk.now.gate.timeout_ms == 1_000
    assert [event["type"] for event in desk.news()] == ["config_refused"]


async def test_a_comment_is_no_change(desk: Desk, looks: Looks) -> None:
    desk.file.write_text(desk.file.read_text() + "# more\n")
    await looks.look(2)
    assert desk.news() == []


async def test_what_needs_a_restart_is_told_once(desk: Desk, looks: Looks) -> None:
    desk.file.write_text("[server]\nport = 1\n[gate]\ntimeout_ms = 1000\n")
    await looks.look(2)
    desk.file.write_text("[server]\nport = 1\n[gate]\ntimeout_ms = 1000\n# again\n")
    await looks.look(2)
    assert desk.news() == [{"type": "config_reloaded", "changed": [], "needsRestart": ["server.port"], "cause": "file"}]
    assert desk.reload.view().needs_restart == ["server.port"]


async def test_the_environment_wins_over_a_file_that_changes(tmp_path: Path) -> None:
    desk = Desk(tmp_path, environ={"TABHERD_GATE__TIMEOUT_MS": "3000"})
    desk.file.write_text("[gate]\ntimeout_ms = 2000\n")
    assert await desk.reload.reload("signal") == Changes()
    assert desk.now.gate.timeout_ms == 3_000


async def test_a_limit_that_the_file_no_longer_names_is_kept_and_said_to_be(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "[scheduler]\nworkers = 3\n")
    desk.file.write_text("")
    assert await desk.reload.reload("signal") == Changes()
    assert desk.reload.view().sources["scheduler.workers"] == "kept"


# --- Through the interface --------------------------------------------------------------------------------------


async def test_a_patch_is_in_the_file_and_in_force(desk: Desk) -> None:
    assert await desk.patch(gate={"timeout_ms": 2_000}) == Changes(changed=("gate.timeout_ms",))
    assert desk.file.read_text() == "[gate]\ntimeout_ms = 2000  # ours\n"
    assert desk.now.gate.timeout_ms == 2_000
    assert desk.news() == [
        {"type": "config_reloaded", "changed": ["gate.timeout_ms"], "needsRestart": [], "cause": "patch"}
    ]


async def test_a_patch_is_not_told_a_second_time_by_the_watch(desk: Desk, looks: Looks) -> None:
    await desk.patch(gate={"timeout_ms": 2_000})
    await looks.look(3)
    assert len(desk.news()) == 1


@pytest.mark.parametrize(
    ("patch", "error"),
    [
        ({"gate": {"timeout_ms": -1}}, InvalidRequest),
        ({"gate": {"timeout_m": 5}}, UnknownField),
        ({"gate": {"timeout_ms": 5, "timeout_floor_ms": 6}}, InvalidRequest),
        ({"pools": {"default": {"browsers_max": 18}}}, InvalidRequest),
        ({"server": {"drain_s": 1}, "tiers": {"pro": "soon"}}, InvalidRequest),
    ],
)
async def test_a_patch_that_is_not_valid_changes_neither_the_file_nor_what_is_in_force(
    desk: Desk, patch: dict[str, Any], error: type[Exception]
) -> None:
    text, before = desk.file.read_text(), desk.now
    with pytest.raises(error):
        await desk.patch(**patch)
    assert desk.file.read_text() == text
    assert desk.now is before
    assert desk.news() == []


async def test_a_patch_of_a_file_that_is_broken_is_refused_and_leaves_it(desk: Desk) -> None:
    desk.file.write_text("[gate")
    with pytest.raises(InvalidRequest, match="cannot be read"):
        await desk.patch(gate={"timeout_ms": 2_000})
    assert desk.file.read_text() == "[gate"


async def test_null_takes_a_key_out_of_the_file(desk: Desk) -> None:
    await desk.patch(gate={"timeout_ms": None})
    assert desk.file.read_text() == "[gate]\n"
    assert desk.now.gate == Config().gate


async def test_zero_leaves_a_limit_as_it_is_and_the_file_too(desk: Desk) -> None:
    text = desk.file.read_text()
    assert await desk.patch(scheduler={"workers": 0}) == Changes()
    assert desk.file.read_text() == text


async def test_an_empty_patch_changes_nothing(desk: Desk) -> None:
    text = desk.file.read_text()
    assert await desk.patch(server={}) == Changes()
    assert desk.file.read_text() == text


async def test_a_key_that_the_environment_sets_is_refused_with_the_name_of_the_variable(tmp_path: Path) -> None:
    desk = Desk(tmp_path, environ={"TABHERD_SCHEDULER__WORKERS": "3"})
    with pytest.raises(StateConflict, match="TABHERD_SCHEDULER__WORKERS") as caught:
        await desk.patch(scheduler={"workers": 4, "queue_max": 9})
    assert caught.value.details["origin"] == "TABHERD_SCHEDULER__WORKERS"
    assert desk.file.read_text() == ""


async def test_a_key_that_a_flag_sets_is_refused(tmp_path: Path) -> None:
    desk = Desk(tmp_path, flags={"server.port": 3})
    with pytest.raises(StateConflict, match="flag"):
        await desk.patch(server=None)


async def test_patches_that_come_together_are_all_there_in_the_end(desk: Desk) -> None:
    names = [f"tier{number}" for number in range(20)]
    await asyncio.gather(*(desk.patch(tiers={name: 60}) for name in names))
    assert set(names) <= set(desk.now.tiers)
    assert all(f"{name} = 60\n" in desk.file.read_text() for name in names)


async def test_without_a_file_there_is_nothing_to_patch_or_reload(
    make_app: Callable[..., App], admin_token: str
) -> None:
    async with client_of(make_app(), admin_token) as admin:
        answer = await admin.patch("/config", json={"gate": {"timeout_ms": 2_000}})
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert (await admin.get("/config")).json()["file"] is None


async def test_a_server_that_was_given_its_settings_by_hand_keeps_them_on_a_signal() -> None:
    settings = Settings(Config(store="memory://"))
    reload = Reload(settings, Layers(), EventBus(epoch=1, ring=16))
    assert await reload.reload("signal") == Changes()
    assert settings.current.store == "memory://"


# --- Over HTTP --------------------------------------------------------------------------------------------------


async def test_the_settings_are_shown_with_where_they_come_from(
    tmp_path: Path, make_app: Callable[..., App], admin_token: str
) -> None:
    desk = Desk(tmp_path, "[gate]\ntimeout_ms = 1000\n", {"TABHERD_AUTH__RATE_BURST": "2000"}, {"server.port": 1})
    await desk.reload.reload("file")
    async with client_of(make_app(reload=desk.reload), admin_token) as admin:
        shown = (await admin.get("/config")).json()
    assert shown["file"] == str(desk.file)
    assert shown["settings"]["gate"]["timeout_ms"] == 1_000
    picked = ("gate.timeout_ms", "auth.rate_burst", "server.port", "pools.default.warm", "store", "tiers.pro")
    assert [shown["sources"][name] for name in picked] == [
        "file",
        "environment",
        "flag",
        "default",
        "default",
        "default",
    ]


async def test_secrets_are_neither_shown_nor_taken_back_masked(
    tmp_path: Path, make_app: Callable[..., App], admin_token: str
) -> None:
    desk = Desk(tmp_path, '[webhooks]\nsecret = "sesame"\n')
    async with client_of(make_app(reload=desk.reload), admin_token) as admin:
        shown = await admin.get("/config")
        assert "sesame" not in shown.text
        assert shown.json()["settings"]["webhooks"]["secret"] == MASK
        answer = await admin.patch("/config", json={"webhooks": {"secret": MASK}})
    assert (answer.status_code, answer.json()["details"]) == (400, {"field": "webhooks.secret"})


async def test_a_password_in_the_address_of_the_store_is_not_shown() -> None:
    reload = Reload(Settings(Config(store="postgresql://ann:pass@db/x")), Layers(), EventBus(epoch=1, ring=16))
    assert reload.view().settings["store"] == f"postgresql://ann:{MASK}@db/x"


async def test_the_edge_follows_what_is_patched(
    tmp_path: Path, make_app: Callable[..., App], admin_token: str, alice_token: str
) -> None:
    desk = Desk(tmp_path)
    app = make_app(reload=desk.reload)
    patch = {
        "server": {"body_max_bytes": 1_024, "allowed_hosts": ["herd.test"]},
        "auth": {"rate_per_s": 1, "rate_burst": 1},
    }
    async with client_of(app, admin_token) as admin, client_of(app, alice_token) as alice:
        assert (await admin.get("/config", headers={"Host": "herd.test"})).status_code == 403
        answer = await admin.patch("/config", json=patch)
        assert answer.json() == {
            "changed": ["auth.rate_burst", "auth.rate_per_s", "server.allowed_hosts", "server.body_max_bytes"],
            "needsRestart": [],
        }
        assert (await admin.get("/config", headers={"Host": "herd.test"})).status_code == 200
        large = await admin.patch("/config", content=b" " * 2_000)
        assert large.json()["code"] == "body_too_large"
        statuses = [(await alice.get("/browsers")).status_code for _ in range(3)]
        assert 429 in statuses


async def test_a_change_is_in_the_audit_trail_by_who_and_what_but_not_by_value(
    tmp_path: Path, make_app: Callable[..., App], admin_token: str, broker: FakeBroker
) -> None:
    desk = Desk(tmp_path)
    patch = {"webhooks": {"secret": "sesame"}, "pools": {"default": {"max_active": 3}}}
    async with client_of(make_app(reload=desk.reload), admin_token) as admin:
        assert (await admin.patch("/config", json=patch)).status_code == 200
    (entry,) = broker.auditor.noted
    assert (entry["agent_id"], entry["verb"]) == ("root", "config")
    assert entry["detail"] == "pools.default.max_active, webhooks.secret"


async def test_a_refused_change_is_not_in_the_audit_trail(
    tmp_path: Path, make_app: Callable[..., App], admin_token: str, broker: FakeBroker
) -> None:
    desk = Desk(tmp_path)
    async with client_of(make_app(reload=desk.reload), admin_token) as admin:
        assert (await admin.patch("/config", json={"gate": {"timeout_ms": "soon"}})).status_code == 400
    assert broker.auditor.noted == []


def test_a_change_of_very_many_settings_is_told_in_part() -> None:
    told = told_names(wire.ConfigPatch(tiers={f"tier-{n:04}": 60 for n in range(1_000)}))
    assert (len(told), told[-1]) == (TOLD_MAX_CHARS, "…")


async def test_an_unknown_section_is_refused_with_the_nearest(admin: httpx.AsyncClient) -> None:
    answer = await admin.patch("/config", json={"schedulr": {}})
    assert answer.json()["details"] == {"field": "schedulr", "nearest": "scheduler"}


def test_every_section_of_the_configuration_can_be_patched() -> None:
    fields = [[field.name for field in msgspec.structs.fields(each)] for each in (wire.ConfigPatch, Config)]
    assert fields[0] == fields[1]

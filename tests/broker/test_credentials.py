"""Tokens: seen once, kept as hashes, refused the moment they are revoked; the admin's file is private or refused."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tabherd.broker import credentials as module
from tabherd.broker.caller import Caller
from tabherd.broker.credentials import ADMIN_TOKEN_FILE, TOKEN_FORM, Credentials, ensure_admin_token, hash_of, new_token
from tabherd.core.model import Credential, RowT
from tabherd.edge.server import install_admin_token
from tabherd.errors import InvalidRequest, ResourceNotFound, Unauthenticated
from tabherd.store.base import Scalar
from tabherd.store.memory import MemoryStore

BOB = Caller(agent_id="bob", scopes=frozenset({"browse"}), controller_id="crd_bob/")
ROOT = Caller(agent_id="root", scopes=frozenset({"admin"}), controller_id="crd_root/")


class CountingStore(MemoryStore):
    """Counts reads, and can hold one back."""

    def __init__(self) -> None:
        super().__init__()
        self.selects = 0
        self.gate: asyncio.Event | None = None

    async def select(
        self, table: type[RowT], where: Mapping[str, Scalar | tuple[Scalar, ...]] | None = None, **more: Any
    ) -> list[RowT]:
        self.selects += 1
        rows = await super().select(table, where, **more)
        if self.gate is not None:
            await self.gate.wait()
        return rows


def test_a_token_has_its_form_and_is_never_twice_the_same() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(TOKEN_FORM.fullmatch(token) for token in tokens)


async def test_a_token_authenticates_as_the_agent_it_was_made_for() -> None:
    credentials = Credentials(MemoryStore())
    token, row = await credentials.create("alice", ["evaluate", "browse", "browse"])
    assert await credentials.authenticate(token) == (await Credentials(credentials._store).authenticate(token))
    assert row.scopes == ("browse", "evaluate")
    found = await credentials.authenticate(token)
    assert found is not None
    assert found.agent_id == "alice"


async def test_the_store_never_sees_the_token() -> None:
    store = MemoryStore()
    token, row = await Credentials(store).create("alice", ["browse"])
    (stored,) = await store.select(Credential)
    assert token not in repr(stored)
    assert stored.token_hash == hash_of(token) == row.token_hash


async def test_the_memory_of_callers_does_not_hold_tokens() -> None:
    credentials = Credentials(MemoryStore())
    token, _ = await credentials.create("alice", ["browse"])
    await credentials.authenticate(token)
    assert token not in repr(credentials._remembered)


@pytest.mark.parametrize("token", ["", "th_", "th_" + "x" * 42, "th_" + "x" * 44, "xx_" + "x" * 43, "th_" + "é" * 43])
async def test_what_is_not_even_a_token_is_refused_without_a_read(token: str) -> None:
    store = CountingStore()
    assert await Credentials(store).authenticate(token) is None
    assert store.selects == 0


async def test_an_unknown_token_is_refused() -> None:
    credentials = Credentials(MemoryStore())
    await credentials.create("alice", ["browse"])
    assert await credentials.authenticate(new_token()) is None


async def test_a_known_token_costs_no_read_until_its_time_is_over() -> None:
    now = 0.0
    store = CountingStore()
    credentials = Credentials(store, clock=lambda: now)
    token, _ = await credentials.create("alice", ["browse"])
    for _ in range(10):
        await credentials.authenticate(token)
    assert store.selects == 1
    now += module.REMEMBER_S
    await credentials.authenticate(token)
    assert store.selects == 2


async def test_a_revoked_token_is_refused_at_once() -> None:
    credentials = Credentials(MemoryStore())
    token, row = await credentials.create("alice", ["browse"])
    assert await credentials.authenticate(token) is not None
    assert await credentials.revoke(row.id)
    assert await credentials.authenticate(token) is None
    assert not await credentials.revoke(row.id)


async def test_a_token_revoked_elsewhere_is_refused_when_its_time_is_over() -> None:
    now = 0.0
    store = MemoryStore()
    here, elsewhere = Credentials(store, clock=lambda: now), Credentials(store)
    token, row = await here.create("alice", ["browse"])
    await here.authenticate(token)
    await elsewhere.revoke(row.id)
    now += module.REMEMBER_S
    assert await here.authenticate(token) is None


async def test_a_read_that_began_before_a_revocation_is_not_remembered_after_it() -> None:
    store = CountingStore()
    credentials = Credentials(store)
    token, row = await credentials.create("alice", ["browse"])
    store.gate = asyncio.Event()
    racing = asyncio.create_task(credentials.authenticate(token))
    while store.selects == 0:
        await asyncio.sleep(0)
    await credentials.revoke(row.id)
    store.gate.set()
    await racing
    assert await credentials.authenticate(token) is None


# --- Expiry, lists and revoking ---------------------------------------------------------------------------------


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Milliseconds since 1970, as a list of one that a test may change."""
    at = [1_000_000]
    monkeypatch.setattr(module, "now_ms", lambda: at[0])
    return at


async def test_a_token_that_has_expired_is_refused_and_told_since_when_remembered_or_not(now: list[int]) -> None:
    credentials = Credentials(MemoryStore())
    token, row = await credentials.create("alice", ["browse"], expires_in_s=60)
    now[0] += 59_999
    assert await credentials.authenticate(token) is not None
    await credentials.recheck(row)
    assert credentials.is_remembered(row)
    now[0] += 1
    assert not credentials.is_remembered(row)
    for refused in (
        credentials.authenticate(token),
        credentials.find(row.id),
        credentials.recheck(row),
        Credentials(credentials._store).authenticate(token),
    ):
        with pytest.raises(Unauthenticated, match="expired at 1970-01-01T00:17:40"):
            await refused


async def test_a_token_without_an_expiry_never_expires(now: list[int]) -> None:
    credentials = Credentials(MemoryStore())
    token, _ = await credentials.create("alice", ["browse"])
    now[0] += 10**13
    assert await credentials.authenticate(token) is not None


async def test_a_second_token_of_an_agent_leaves_the_first_good() -> None:
    credentials = Credentials(MemoryStore())
    first, _ = await credentials.create("alice", ["browse"])
    await credentials.create("alice", ["browse"])
    assert await credentials.authenticate(first) is not None


async def test_an_agent_sees_its_own_tokens_and_an_admin_all_page_by_page() -> None:
    credentials = Credentials(MemoryStore())
    rows = [(await credentials.create(agent, ["browse"]))[1] for agent in ("alice", "bob", "bob")]
    bobs = {row.id for row in rows if row.agent_id == "bob"}
    seen = await credentials.list(BOB, agent_id=None, limit=10, cursor="")
    assert {view.token_id for view in seen.tokens} == bobs
    asked = await credentials.list(ROOT, agent_id="bob", limit=10, cursor="")
    assert {view.token_id for view in asked.tokens} == bobs
    first = await credentials.list(ROOT, agent_id=None, limit=2, cursor="")
    rest = await credentials.list(ROOT, agent_id=None, limit=2, cursor=first.next_cursor or "")
    assert [view.token_id for view in (*first.tokens, *rest.tokens)] == sorted(row.id for row in rows)
    assert rest.next_cursor is None


async def test_an_agent_revokes_its_own_tokens_and_an_admin_any_twice_is_as_good_as_once() -> None:
    credentials = Credentials(MemoryStore())
    theirs, row = await credentials.create("alice", ["browse"])
    with pytest.raises(ResourceNotFound):
        await credentials.revoke_for(BOB, row.id)
    with pytest.raises(ResourceNotFound):
        await credentials.revoke_for(ROOT, "crd_none")
    assert await credentials.authenticate(theirs) is not None
    for _ in range(2):
        await credentials.revoke_for(ROOT, row.id)
    assert await credentials.authenticate(theirs) is None
    own, row = await credentials.create("bob", ["browse"])
    await credentials.revoke_for(BOB, row.id)
    assert await credentials.authenticate(own) is None


async def test_an_admin_token_that_was_revoked_stays_so_when_the_server_starts_again(tmp_path: Path) -> None:
    credentials = Credentials(MemoryStore())
    await install_admin_token(credentials, tmp_path, "nod_1")
    old = ensure_admin_token(tmp_path)
    await install_admin_token(credentials, tmp_path, "nod_1")
    assert ensure_admin_token(tmp_path) == old
    await credentials.revoke("crd_admin_nod_1")
    await install_admin_token(credentials, tmp_path, "nod_1")
    new = ensure_admin_token(tmp_path)
    assert new != old
    assert await credentials.authenticate(old) is None
    assert await credentials.authenticate(new) is not None


async def test_the_memory_of_callers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBER_MAX", 3)
    credentials = Credentials(MemoryStore())
    for number in range(6):
        token, _ = await credentials.create(f"agent{number}", ["browse"])
        assert await credentials.authenticate(token) is not None
    assert len(credentials._remembered) == 3


async def test_no_agent_may_have_the_admins_name() -> None:
    with pytest.raises(InvalidRequest):
        await Credentials(MemoryStore()).create("admin", ["browse"])


async def test_a_new_admin_token_ends_the_one_before() -> None:
    store = MemoryStore()
    old, new = new_token(), new_token()
    await Credentials(store).install_admin(old, "nod_1")
    after_restart = Credentials(store)
    await after_restart.install_admin(new, "nod_1")
    assert await after_restart.authenticate(old) is None
    found = await after_restart.authenticate(new)
    assert found is not None
    assert found.scopes == ("admin",)


# --- The admin's file -------------------------------------------------------------------------------------------


@pytest.fixture
def careless_umask() -> Iterator[None]:
    before = os.umask(0o000)
    yield
    os.umask(before)


@pytest.mark.usefixtures("careless_umask")
def test_the_admin_token_is_made_once_and_private(tmp_path: Path) -> None:
    token = ensure_admin_token(tmp_path)
    assert ensure_admin_token(tmp_path) == token
    assert TOKEN_FORM.fullmatch(token)
    assert stat.S_IMODE((tmp_path / ADMIN_TOKEN_FILE).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [ADMIN_TOKEN_FILE]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_an_admin_token_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    ensure_admin_token(tmp_path)
    (tmp_path / ADMIN_TOKEN_FILE).chmod(mode)
    with pytest.raises(InvalidRequest, match="leaked") as caught:
        ensure_admin_token(tmp_path)
    assert "Remove" in caught.value.action


@pytest.mark.parametrize("content", ["", "th_short", "garbage " * 100])
def test_an_admin_token_file_without_a_token_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / ADMIN_TOKEN_FILE
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(InvalidRequest, match="does not hold a token"):
        ensure_admin_token(tmp_path)


def test_an_admin_token_is_not_read_through_a_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(new_token())
    elsewhere.chmod(0o600)
    (tmp_path / ADMIN_TOKEN_FILE).symlink_to(elsewhere)
    with pytest.raises(InvalidRequest):
        ensure_admin_token(tmp_path)


def test_of_two_that_start_at_once_both_use_the_token_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link
    winner = new_token()

    def link_late(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        target.write_text(winner)
        target.chmod(0o600)
        link(source, target)

    monkeypatch.setattr(os, "link", link_late)
    assert ensure_admin_token(tmp_path) == winner
    assert len(list(tmp_path.iterdir())) == 1

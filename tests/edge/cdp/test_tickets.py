"""Connect tickets: nobody can write or change one, they end, and their key outlives a restart."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabherd.edge.cdp.tickets import KEY_BYTES, KEY_FILE, LIFE_MS, Tickets, ensure_key
from tabherd.edge.cdp.wish import Wish
from tabherd.errors import InvalidRequest, Unauthenticated

KEY = b"k" * KEY_BYTES
NOBODY = 65_534
WISH = Wish(session="ses_1", fence=7, keep_alive=True, controller_id="me", cdp_wait_policy="fail")


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tickets(clock: Clock) -> Tickets:
    return Tickets(KEY, clock=clock)


def test_a_ticket_says_what_was_signed(tickets: Tickets) -> None:
    ticket = tickets.read(tickets.sign("crd_1", "ada", WISH))
    assert (ticket.credential_id, ticket.agent_id, ticket.wish) == ("crd_1", "ada", WISH)


def test_a_ticket_fits_into_an_address(tickets: Tickets) -> None:
    text = tickets.sign("crd_1", "é/?&=#", WISH)
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def test_a_ticket_ends(tickets: Tickets, clock: Clock) -> None:
    text = tickets.sign("crd_1", "ada", WISH)
    clock.now += LIFE_MS - 1
    tickets.read(text)
    clock.now += 1
    with pytest.raises(Unauthenticated, match="too old"):
        tickets.read(text)


def test_a_ticket_of_a_session_ends_when_that_does(tickets: Tickets, clock: Clock) -> None:
    text = tickets.sign("crd_1", "ada", WISH, expires_at=clock.now + 10)
    clock.now += 10
    with pytest.raises(Unauthenticated):
        tickets.read(text)


def test_a_ticket_of_another_key_is_not_one(tickets: Tickets, clock: Clock) -> None:
    with pytest.raises(Unauthenticated):
        tickets.read(Tickets(b"x" * KEY_BYTES, clock=clock).sign("crd_1", "ada", WISH))


@given(position=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_ticket_with_one_bit_changed_is_not_one(position: int, bit: int) -> None:
    tickets = Tickets(KEY, clock=lambda: 0)
    text = tickets.sign("crd_1", "ada", WISH)
    raw = bytearray(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    raw[position % len(raw)] ^= 1 << bit
    with pytest.raises(Unauthenticated):
        tickets.read(base64.urlsafe_b64encode(raw).rstrip(b"=").decode())


@given(text=st.text(max_size=100))
def test_any_other_text_is_not_one(text: str) -> None:
    with pytest.raises(Unauthenticated):
        Tickets(KEY, clock=lambda: 0).read(text)


def test_the_key_is_made_once_and_kept_private(tmp_path: Path) -> None:
    key = ensure_key(tmp_path / KEY_FILE)
    assert len(key) == KEY_BYTES
    assert ensure_key(tmp_path / KEY_FILE) == key
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600


def test_half_a_key_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / KEY_FILE).write_bytes(b"half")
    (tmp_path / KEY_FILE).chmod(0o600)
    assert len(ensure_key(tmp_path / KEY_FILE)) == KEY_BYTES
    assert ensure_key(tmp_path / KEY_FILE) == ensure_key(tmp_path / KEY_FILE)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    ensure_key(tmp_path / KEY_FILE)
    (tmp_path / KEY_FILE).chmod(mode)
    with pytest.raises(InvalidRequest, match="leaked") as caught:
        ensure_key(tmp_path / KEY_FILE)
    assert caught.value.action == f"Remove {tmp_path / KEY_FILE} and start again; a new key is made."


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_key_of_another_user_is_refused(tmp_path: Path) -> None:
    ensure_key(tmp_path / KEY_FILE)
    os.chown(tmp_path / KEY_FILE, NOBODY, -1)
    with pytest.raises(InvalidRequest, match="belongs to another user"):
        ensure_key(tmp_path / KEY_FILE)


def test_a_key_is_not_read_through_a_link_and_not_from_a_pipe(tmp_path: Path) -> None:
    ensure_key(tmp_path / "elsewhere")
    (tmp_path / KEY_FILE).symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path / KEY_FILE, tmp_path / "pipe"):
        with pytest.raises(InvalidRequest):
            ensure_key(path)


def test_two_directories_have_two_keys(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert ensure_key(tmp_path / "a" / KEY_FILE) != ensure_key(tmp_path / "b" / KEY_FILE)

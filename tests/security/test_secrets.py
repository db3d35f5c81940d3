"""No secret that was shown to a server is repeated anywhere, but where the threat model says that it is kept."""

from __future__ import annotations

import pytest

from .canaries import Lived, found, lived

pytestmark = [pytest.mark.server, pytest.mark.browser]

COOKIE = "a cookie of a session"
CALLBACK = "the word in a callback"
PASSWORD = "a password in an address"
# Where a secret is on purpose, and no others are.
KEPT = {
    "file admin.token": {"the admin's token"},
    # Logins and addresses of open sessions, and what agents gave for their tasks.
    "file tabherd.db": {COOKIE, CALLBACK, PASSWORD},
    # Whoever is called back is told as which address.
    "webhooks": {CALLBACK},
}
KEPT_ROWS = {
    "checkpoints": {COOKIE},
    # A page that is open, and is opened again at its address after a crash.
    "tabs": {PASSWORD},
    # What the agent's own script answered.
    "commands": {COOKIE},
    "tasks": {CALLBACK},
    "deliveries": {CALLBACK},
}


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Lived:
    return lived(tmp_path_factory.mktemp("canaries"))


def test_everything_was_done_that_is_looked_for(life: Lived) -> None:
    """Otherwise nothing could be found."""
    opened = {"control", "control, malformed", "CDP", "CDP by ticket", "CDP of a page", "live", "live of a person"}
    assert {what: life.statuses[what] for what in opened} == dict.fromkeys(opened, 101)
    assert {what for what, status in life.statuses.items() if status == 101} == opened
    assert life.statuses["a login that is used"] == life.statuses["a token in a query"] == 200
    assert life.statuses["a login without its word"] == life.statuses["a login with a wrong token"] == 401
    assert len(life.secrets) == len(set(life.secrets.values())) == 12
    assert '"level": "debug"' in life.places["the log"]
    assert "browser." in life.places["GET /events"]
    assert "--user-data-dir" in life.places["processes"]
    assert {status for refusal in life.refusals if (status := life.statuses.get(refusal.what)) is not None} >= {
        400, 401, 403, 404, 422
    }  # fmt: skip


def test_no_secret_is_said_or_written_but_where_it_is_kept_on_purpose(life: Lived) -> None:
    assert {place: secrets for place in life.places if (secrets := life.found_in(place))} == KEPT


def test_the_store_keeps_a_secret_in_the_rows_that_are_for_it(life: Lived) -> None:
    assert {name: secrets for name, rows in life.tables.items() if (secrets := found(life.secrets, rows))} == KEPT_ROWS


def test_webhooks_carry_no_secret_in_their_headers(life: Lived) -> None:
    heads, _, _ = life.places["webhooks"].partition("\n\n")
    assert "X-Tabherd-Signature" in heads
    assert not found(life.secrets, heads)


def test_a_refusal_has_no_secret_that_its_own_request_did_not_show(life: Lived) -> None:
    told = [
        (refusal.what, refusal.said, more)
        for refusal in life.refusals
        if (more := found(life.secrets, refusal.said) - found(life.secrets, refusal.sent))
    ]
    assert not told


@pytest.mark.parametrize("secret", ["the admin's token", "an agent's token", "a wrong token"])
def test_a_token_in_a_path_or_a_query_or_a_header_is_not_repeated(life: Lived, secret: str) -> None:
    shown = [
        refusal for refusal in life.refusals if refusal.what.startswith(secret) and "in a body" not in refusal.what
    ]
    assert shown
    # A name that a query must not have is named.
    unknown = {refusal.what for refusal in shown if life.secrets[secret] in refusal.said}
    assert unknown <= {f"{secret} at /ws?"}


def test_a_password_in_an_address_is_not_repeated(life: Lived) -> None:
    password = life.secrets["a password in an address"]
    shown = [refusal for refusal in life.refusals if f":{password}@" in refusal.sent]
    assert {refusal.what for refusal in shown} >= {"a password at http", "a password in a callback", "MCP"}
    assert not [refusal for refusal in shown if password in refusal.said]

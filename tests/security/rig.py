"""A server with things of two agents in it, and every kind of credential that somebody could show it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
from tests.edge.control_house import House, house, until

from tabherd.broker.caller import AGENT_SCOPES
from tabherd.cluster import hop
from tabherd.core.model import Credential
from tabherd.edge.cdp.tickets import Tickets
from tabherd.edge.cdp.wish import Wish
from tabherd.edge.login import LIFE_MS, Logins

# Who asks, whose things are asked for, and somebody who is neither.
ALICE: Final = "alice"
BOB: Final = "bob"
ABSENT: Final = "01absent00000000000000000"
SCOPES: Final = tuple(sorted(AGENT_SCOPES))


class Things(msgspec.Struct, frozen=True, kw_only=True):
    """Ids of what one agent has; the names of a path's parameters."""

    session: str
    tab: str
    command: str
    task: str
    lock: str
    browser: str
    token: str
    file: str = "report.txt"

    def of(self, parameter: str, path: str) -> str:
        """What stands for that parameter of that path."""
        match parameter:
            case "name":
                return self.file if path.startswith("/sessions") else "app.js" if path.startswith("/ui") else self.lock
            case _:
                return str(getattr(self, parameter.removesuffix("Id")))


NOTHING: Final = Things(
    session=f"ses_{ABSENT}", tab=f"tab_{ABSENT}", command=f"cmd_{ABSENT}", task=f"tsk_{ABSENT}", lock="free-lock",
    browser=f"brw_{ABSENT}", token=f"crd_{ABSENT}", file="nothing.txt",
)  # fmt: skip


class Rig:
    """The server, and who can be at its door."""

    def __init__(
        self,
        here: House,
        tokens: dict[str, str],
        alice: Credential,
        revoked: tuple[str, Credential],
        ticket: str,
        login: dict[str, str],
        http: httpx.AsyncClient,
    ) -> None:
        self.here = here
        # Asks without a credential of its own.
        self.http = http
        # By agent, scope (as `scope:browse`) or `admin`.
        self.tokens = tokens
        # What the store has of her token.
        self._alice = alice
        # A token of hers that was revoked.
        self._revoked, self._revoked_row = revoked
        # A signed connect ticket of alice's.
        self.ticket = ticket
        # Alice's cookie and the word that goes with it.
        self._login = login

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.here.port}"

    def bearer(self, who: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[who]}"}

    def strangers(self, method: str, path: str) -> dict[str, dict[str, str]]:
        """Headers that identify nobody, by what is wrong with them."""
        cookie, word = self._login["Cookie"], self._login["X-Csrf-Token"]
        claim = hop.Hop(
            from_node="nod_2", from_epoch=1, to_node="nod_1", at_ms=self.here.broker.clock(), client=None, boot_id=""
        )
        forged = hop.sign(b"not the cluster's key", claim, method, path.encode()).decode()
        return {
            "nothing": {},
            "garbage": {"Authorization": "Bearer th_" + "A" * 43},
            "no token at all": {"Authorization": "Bearer"},
            "another scheme": {"Authorization": "Basic YWxpY2U6YWxpY2U="},
            "a revoked token": {"Authorization": f"Bearer {self._revoked}"},
            "a login of a revoked token": self._signed_login(self._revoked_row),
            "a login that is too old": self._signed_login(self._alice, age_ms=LIFE_MS),
            "a login under another key": self._signed_login(self._alice, key=b"not the server's"),
            "a ticket for a token": {"Authorization": f"Bearer {self.ticket}"},
            "the hash of a token": {"Authorization": f"Bearer {self._alice.token_hash}"},
            "a cookie without its word": {"Cookie": cookie},
            "a cookie with another word": {"Cookie": cookie, "X-Csrf-Token": "0" * len(word)},
            "a word without its cookie": {"X-Csrf-Token": word},
            "a cookie that was changed": {"Cookie": cookie[:-1] + ("A" if cookie[-1] != "A" else "B"),
                                          "X-Csrf-Token": word},
            "a forged hop": {"X-Tabherd-Hop": forged},
            "an agent's name alone": {"X-Agent-Id": ALICE},
        }  # fmt: skip

    def _signed_login(self, whose: Credential, *, age_ms: int = 0, key: bytes = b"") -> dict[str, str]:
        """A login of that age, with its word, as the server itself would have given it out under that key."""
        ours = self.here.ticket_key
        login = Logins(key or ours, clock=lambda: self.here.broker.clock() - age_ms).sign(whose.id)
        return {"Cookie": f"{Logins(ours).cookie_name}={login.cookie}", "X-Csrf-Token": login.csrf}

    def bad_tickets(self, session_id: str) -> dict[str, str]:
        """Tickets of alice's for that session that open nothing, by what is wrong with them."""
        now, wish = self.here.broker.clock(), Wish(session=session_id)

        def signed(whose: Credential, until: int = now + LIFE_MS, key: bytes = b"") -> str:
            return Tickets(key or self.here.ticket_key).sign(whose.id, ALICE, wish, until)

        return {
            "too old": signed(self._alice, now),
            "of a revoked token": signed(self._revoked_row),
            "under another key": signed(self._alice, key=b"not the server's"),
        }

    def good_ticket(self, session_id: str) -> str:
        """One that differs from those only in being good."""
        wish = Wish(session=session_id)
        return Tickets(self.here.ticket_key).sign(self._alice.id, ALICE, wish, self.here.broker.clock() + LIFE_MS)

    @property
    def logged_in(self) -> dict[str, str]:
        """Alice's login as her own page shows it."""
        return dict(self._login)

    def client(self) -> httpx.AsyncClient:
        # Nothing here speaks TLS, and reading the certificates costs more than all requests together.
        return httpx.AsyncClient(base_url=self.url, timeout=120, verify=False, trust_env=False)

    async def things_of(self, agent_id: str, access: str = "exclusive") -> Things:
        """One of everything for that agent."""
        async with self.client() as http:
            http.headers.update(self.bearer(agent_id))

            async def made(path: str, body: Any) -> httpx.Response:
                answer = await http.post(path, json=body)
                assert answer.is_success, (path, answer.text)
                return answer

            session = (await made("/sessions", {"access": access})).json()
            tab_id = session["tabs"][0]["tabId"]
            # The command waits at the page and so can be looked at and cancelled.
            held = f"held-{tab_id}"
            work = http.post(f"/tabs/{tab_id}/action", json={"kind": "evaluate", "expression": held})
            working = asyncio.create_task(work)
            await until(lambda: held in self.here.pages.begun)
            self.here.pages.finish(held)
            command_id = (await working).json()["commandId"]
            task = (await made("/tasks", {"tabId": tab_id, "action": "evaluate",
                                          "params": {"expression": f"done-{agent_id}"}})).json()  # fmt: skip
            lock = f"lock-of-{tab_id}"
            await made(f"/locks/{lock}", {})
        return Things(
            session=session["sessionId"],
            tab=tab_id,
            command=command_id,
            task=task["taskId"],
            lock=lock,
            browser=next(row.row.id for row in [self.here.broker.any_browser()] if row is not None),
            token=(await self.here.credentials.create(agent_id, ["browse"]))[1].id,
        )


@asynccontextmanager
async def rig(files: Path) -> AsyncIterator[Rig]:
    """A server with agents, scopes, a revoked token, a ticket and a login."""
    async with house({"auth": {"rate_per_s": 1_000_000, "rate_burst": 1_000_000}}, files_dir=files) as here:
        tokens = {name: await here.token(name) for name in (ALICE, BOB)}
        for scope in SCOPES:
            tokens[f"scope:{scope}"] = await here.token(ALICE, scope)
        tokens["admin"] = (await here.credentials.create("root", ["admin"]))[0]
        revoked, row = await here.credentials.create(ALICE, [*AGENT_SCOPES])
        await here.credentials.revoke(row.id)
        # On a connection that is kept, a request with a body takes forty milliseconds longer.
        unkept = httpx.Limits(max_keepalive_connections=0)
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{here.port}", timeout=120, verify=False, trust_env=False, limits=unkept
        ) as http:
            answer = await http.post("/login", json={"token": tokens[ALICE]})
            cookie = answer.headers["set-cookie"].partition(";")[0]
            alice = await here.credentials.authenticate(tokens[ALICE])
            assert alice is not None
            login = {"Cookie": cookie, "X-Csrf-Token": answer.json()["csrf"]}
            about = await http.get("/json/version", params={"token": tokens[ALICE]})
            ticket = about.json()["webSocketDebuggerUrl"].rpartition("/")[2]
            yield Rig(here, tokens, alice, (revoked, row), ticket, login, http)

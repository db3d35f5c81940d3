"""The PostgreSQL database: how its address is read, how it is recognised and brought up to date, how it is called.

Invariants: everything of ours is in one schema (`tabherd`, or the search_path that the address asks for) and is named
with it, so no setting of a connection matters. The schema moves forward one numbered file at a time, under a lock that
makes several nodes that start at once take turns; a schema that is newer, or somebody else's, is refused.

Behind a pooler such as PgBouncer a connection is another one after every transaction. That is found out by asking, and
then no statement is kept prepared for the next.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg  # type: ignore[import-untyped]

from ..errors import InvalidRequest
from .postgres_errors import is_loss, refusal
from .postgres_rows import STATEMENTS_MAX

SCHEMA_DEFAULT: Final = "tabherd"
# json and boolean conversions, MATERIALIZED and what else the statements need.
SERVER_VERSION_MIN: Final = 12
# Longer than any statement of ours takes on a server that lives, locks that others hold included.
STATEMENT_LIMIT_S: Final = 8.0
CONNECT_LIMIT_S: Final = 4.0
# Other nodes may be migrating a large table, and we wait for them.
MIGRATION_LIMIT_S: Final = 600.0
# If a node stops in the middle of a transaction, the others get its locks after this.
IDLE_LIMIT_MS: Final = 2_000
# Plans are kept, and one that was made while a table was small must not read it whole when it has grown. A kept plan is
# never worth compiling.
_SETTINGS: Final = {"enable_seqscan": "off", "jit": "off"}
# Keys of PostgreSQL's advisory locks, "tabherd" and a number.
MIGRATION_LOCK: Final = 0x7461_6268_6572_6401
ABSENCE_LOCK: Final = 0x7461_6268_6572_6402

# What libpq takes in an address and the server does not know: the locks may be using the same address.
_LIBPQ_ONLY: Final = re.compile(
    "connect_timeout|keepalives.*|tcp_user_timeout|gssencmode|channel_binding|sslcompression|load_balance_hosts|requirepeer"
)
_SEARCH_PATH: Final = re.compile(r"-c\s*search_path=(\S+)")
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")


class PostgresConnection:
    """One connection. What it is asked outside a transaction is a transaction of its own."""

    def __init__(self, driver: Any) -> None:
        # The driver's connection, which has no types.
        self._driver = driver
        self._is_suspect = False

    @property
    def is_usable(self) -> bool:
        return not self._is_suspect and not self._driver.is_closed()

    async def ask(self, sql: str, arguments: list[Any]) -> Any:
        """The one row of the answer."""
        return await self._driver.fetchrow(sql, *arguments, timeout=STATEMENT_LIMIT_S)

    async def run(self, sql: str, limit_s: float = STATEMENT_LIMIT_S) -> None:
        """Statements without arguments and answers, as many as are wanted, in one round trip."""
        await self._driver.execute(sql, timeout=limit_s)

    async def begin(self, lock_wait_ms: int) -> None:
        """Begin a transaction that a node which stops in the middle of it does not leave to the others."""
        await self.run(
            "BEGIN ISOLATION LEVEL READ COMMITTED;"
            f" SET LOCAL idle_in_transaction_session_timeout = {IDLE_LIMIT_MS}; SET LOCAL lock_timeout = {lock_wait_ms}"
        )

    async def recover(self, error: Exception) -> None:
        """After an error: end the transaction that it left open; or, if the connection is lost, let go of it."""
        if self.is_lost(error):
            self.drop()
        elif self._driver.is_in_transaction():
            try:
                await self.run("ROLLBACK")
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                # The server ends a transaction whose connection is gone.
                self.drop()

    def is_lost(self, error: Exception) -> bool:
        """Whether there is no use in this connection after that."""
        return is_loss(error) or self._driver.is_closed()

    def drop(self) -> None:
        self._is_suspect = True
        self._driver.terminate()

    async def close(self) -> None:
        await self._driver.close(timeout=CONNECT_LIMIT_S)


class PostgresDatabase:
    """An address, and what has been found out about the database behind it."""

    def __init__(self, url: str) -> None:
        self._url, self.schema = split_url(url)
        # For messages: where it is, without user and password.
        self.name = _name(url)
        self._is_pooled = False
        self._is_prepared = False
        # One preparation at a time.
        self._preparing = asyncio.Lock()
        # Called whenever a connection was made: what was refused before may be tried again.
        self.on_answer: list[Callable[[], None]] = []

    async def connect(self) -> PostgresConnection:
        """A new connection; the first one brings the schema up to date."""
        if not self._is_prepared:
            async with self._preparing:
                if not self._is_prepared:
                    await self._prepare()
                    self._is_prepared = True
        return await self._dial(is_pooled=self._is_pooled)

    async def _dial(self, *, is_pooled: bool) -> PostgresConnection:
        try:
            driver = await asyncpg.connect(
                self._url,
                timeout=CONNECT_LIMIT_S,
                statement_cache_size=0 if is_pooled else STATEMENTS_MAX,
                max_cached_statement_lifetime=0,
                max_cacheable_statement_size=0,
                # A pooler would refuse them.
                server_settings=None if is_pooled else _SETTINGS,
            )
        except ValueError as error:
            # What the driver says may repeat the address, with the password in it.
            raise refusal(self.name, "address", "has an address that cannot be read: correct it.") from error
        return PostgresConnection(driver)

    async def _prepare(self) -> None:
        # As if it were pooled, until it is known.
        connection = await self._dial(is_pooled=True)
        try:
            driver = connection._driver
            await connection.run("BEGIN")
            answer = await connection.ask("SELECT pg_backend_pid(), pg_is_in_recovery()", [])
            # A pooler answers for many servers, so it invents the number that it gives to its clients.
            self._is_pooled = answer[0] != driver.get_server_pid()
            if (version := driver.get_server_version()) < (SERVER_VERSION_MIN,):
                sentence = f"is PostgreSQL {version.major}: use {SERVER_VERSION_MIN} or a later one."
                raise refusal(self.name, "old_postgres", sentence)
            if answer[1]:
                raise asyncpg.ReadOnlySQLTransactionError("it is a standby")
            if await self._version(connection) != len(migrations()):
                await self._migrate(connection)
            await connection.run("COMMIT")
        except BaseException:
            # The transaction goes with it, and the lock.
            connection.drop()
            raise
        await connection.close()

    async def _version(self, connection: PostgresConnection) -> int:
        """The number of the schema that stands; 0: none."""
        answer = await connection.ask(
            "SELECT to_regclass($1) IS NOT NULL, to_regclass($2) IS NOT NULL",
            [f"{self.schema}.migrations", f"{self.schema}.sessions"],
        )
        if not answer[0]:
            if answer[1]:
                fix = "name another with options=-csearch_path=NAME in the address."
                raise refusal(self.name, "foreign", f"has a schema {self.schema} of another program: {fix}")
            return 0
        (version,) = await connection.ask(f"SELECT max(number) FROM {self.schema}.migrations", [])
        assert isinstance(version, int)
        if version > len(migrations()):
            sentence = (
                f"has schema {version}, made by a newer tabherd; this one knows schema {len(migrations())}."
                " Upgrade tabherd, or name another database."
            )
            raise refusal(self.name, "newer_schema", sentence)
        return version

    async def _migrate(self, connection: PostgresConnection) -> None:
        """All that is missing, in the transaction that is open."""
        await connection.run(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})", MIGRATION_LIMIT_S)
        # Somebody may have done it meanwhile. A session hears what others did to names when it locks a relation that it
        # has not locked before in its transaction; waiting for our lock was none, and what was not there is remembered.
        await connection.run("SELECT FROM pg_catalog.pg_am LIMIT 0")
        version = await self._version(connection)
        if version == len(migrations()):
            return
        if version == 0:
            # Asked for first, because PostgreSQL wants the right to create even one that exists.
            (is_there,) = await connection.ask("SELECT to_regnamespace($1) IS NOT NULL", [self.schema])
            created = "" if is_there else f"CREATE SCHEMA {self.schema};"
            await connection.run(f"{created} CREATE TABLE {self.schema}.migrations (number INTEGER PRIMARY KEY)")
        await connection.run(f"SET LOCAL search_path = {self.schema}")
        for number, sql in enumerate(migrations()[version:], start=version + 1):
            await connection.run(f"{sql}\nINSERT INTO migrations VALUES ({number})", MIGRATION_LIMIT_S)


@cache
def migrations() -> tuple[str, ...]:
    """The schema files in order; number N brings the database from schema N-1 to N."""
    files = sorted((resources.files(__package__) / "schema" / "postgres").iterdir(), key=lambda file: file.name)
    for number, file in enumerate(files, start=1):
        assert file.name.startswith(f"{number:04d}_"), f"schema file {file.name} is not number {number}"
    return tuple(file.read_text(encoding="utf-8") for file in files)


def split_url(url: str) -> tuple[str, str]:
    """The address without what is not for the server, and the schema that it asks for."""
    parts = urlsplit(url)
    schema = SCHEMA_DEFAULT
    kept: list[tuple[str, str]] = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if _LIBPQ_ONLY.fullmatch(name):
            continue
        if name == "options" and (found := _SEARCH_PATH.search(value)):
            schema = found[1]
            # A pooler refuses options, and we need none.
            value = _SEARCH_PATH.sub("", value).strip()
            if not value:
                continue
        kept.append((name, value))
    if not _SCHEMA.fullmatch(schema):
        raise InvalidRequest(
            "store: its search_path has to be the name of one schema, of a-z, 0-9 and _.",
            action="Use options=-csearch_path=NAME, or leave it out.",
            field="store",
        )
    return urlunsplit(parts._replace(query=urlencode(kept))), schema


def _name(url: str) -> str:
    parts = urlsplit(url)
    where = parts.netloc.rpartition("@")[2] or dict(parse_qsl(parts.query)).get("host", "localhost")
    return f"postgresql://{where}{parts.path}"

"""What the programs in a race have in common: a few rows about agents, in SQLite or in PostgreSQL.

A desk is one program's connection. It reads what others have committed, and others read what it has committed: nothing
here makes two programs wait for each other, except both databases' own rule that one at a time changes a row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg

TABLES: Final = (
    "CREATE TABLE agents (id INTEGER PRIMARY KEY, state TEXT NOT NULL, tokens INTEGER NOT NULL)",
    "CREATE TABLE notes (agent INTEGER NOT NULL, what TEXT NOT NULL)",
)


class Desk:
    """One connection to the rows. Used by one thread."""

    def __init__(self, connection: sqlite3.Connection | psycopg.Connection[Any], mark: str) -> None:
        self._connection: Any = connection
        # Stands for a value in SQL.
        self._mark = mark

    def do(self, sql: str, *values: Any) -> None:
        self._connection.execute(sql.replace("?", self._mark), values)

    def read(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._connection.execute(sql.replace("?", self._mark), values).fetchall()]

    def commit(self) -> None:
        self._connection.commit()

    # --- Agents ---------------------------------------------------------------------------------------------

    def hire(self, agent: int, state: str) -> None:
        """There is an agent more."""
        self.do("INSERT INTO agents VALUES (?, ?, 0)", agent, state)
        self.commit()

    def state(self, agent: int) -> str:
        ((state,),) = self.read("SELECT state FROM agents WHERE id = ?", agent)
        return str(state)

    def move(self, agent: int, state: str) -> None:
        self.do("UPDATE agents SET state = ? WHERE id = ?", state, agent)

    def note(self, agent: int, what: str) -> None:
        """Write down that something was done for an agent: whoever does it twice is found out here."""
        self.do("INSERT INTO notes VALUES (?, ?)", agent, what)

    def notes(self, agent: int) -> list[str]:
        """All that was done, in alphabetical order."""
        return [str(what) for (what,) in self.read("SELECT what FROM notes WHERE agent = ? ORDER BY what", agent)]


class SqliteCabinet:
    """Rows in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def desk(self) -> Iterator[Desk]:
        with closing(sqlite3.connect(self._path)) as connection:
            yield Desk(connection, "?")


class PostgresCabinet:
    """Rows in a schema of a database."""

    def __init__(self, url: str, schema: str) -> None:
        self._url = url
        self._schema = schema
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schema}")

    @contextmanager
    def desk(self) -> Iterator[Desk]:
        with closing(psycopg.connect(self._url, options=f"-c search_path={self._schema}")) as connection:
            yield Desk(connection, "%s")


Cabinet = SqliteCabinet | PostgresCabinet


def filled(cabinet: Cabinet) -> Cabinet:
    """With the tables that the scenes use."""
    with cabinet.desk() as desk:
        for table in TABLES:
            desk.do(table)
        desk.commit()
    return cabinet

"""What can stand between a program and its database: a line that goes dead, and a pooler."""

from __future__ import annotations

import ctypes
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# Linux: have the kernel drop what a filter refuses, before TCP sees it.
SO_ATTACH_FILTER: Final = 26
# The filter's one instruction: accept no byte.
DROP_ALL: Final = struct.pack("HBBI", 0x06, 0, 0, 0)


class Wire:
    """A line to the database that can be cut without a sound: no packet is answered any more, none is refused."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def go_silent(self) -> None:
        """As if the cable were pulled out, on both sides."""
        instruction = ctypes.create_string_buffer(DROP_ALL)
        program = struct.pack("HP", 1, ctypes.addressof(instruction))
        for end in self._ends:
            end.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)

    def close(self) -> None:
        for end in (self._listener, *self._ends):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                # Not connected any more.
                continue
        for thread in self._threads:
            thread.join(10)
        for end in (self._listener, *self._ends):
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._port))
            self._ends += [near, far]
            for source, sink in ((near, far), (far, near)):
                thread = threading.Thread(target=_pump, args=(source, sink), daemon=True)
                self._threads.append(thread)
                thread.start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        # One of the ends is gone: there is nothing left to carry.
        return


@contextmanager
def wire_to(port: int) -> Iterator[Wire]:
    wire = Wire(port)
    try:
        yield wire
    finally:
        wire.close()


class Pooler:
    """Lends sessions of the database to its clients, each for one transaction, as PgBouncer does in that mode."""

    def __init__(self, port: int) -> None:
        self._backend = socket.create_connection(("127.0.0.1", port))
        self._backend.sendall(_startup())
        self._greeting = _until_ready(self._backend)
        # One session for all of them.
        self._turn = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._clients: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for client in self._clients:
            try:
                client.shutdown(socket.SHUT_RDWR)
            except OSError:
                # It has left by itself.
                continue
        for thread in self._threads:
            thread.join(10)
        for end in (self._listener, self._backend, *self._clients):
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._clients.append(client)
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        try:
            _read_startup(client)
            client.sendall(_with_other_key(self._greeting))
            while True:
                request = kind = b""
                # A transaction is over when the client asks for an answer.
                while kind not in (b"Q", b"S"):
                    kind, message = _message(client)
                    if kind == b"X":
                        return
                    request += message
                with self._turn:
                    self._backend.sendall(request)
                    client.sendall(_until_ready(self._backend))
        except (OSError, EOFError):
            # The client is gone.
            return


def _startup() -> bytes:
    body = struct.pack("!i", 196_608) + b"user\0postgres\0database\0postgres\0\0"
    return struct.pack("!i", len(body) + 4) + body


def _read_startup(client: socket.socket) -> None:
    while True:
        (length,) = struct.unpack("!i", _exactly(client, 4))
        body = _exactly(client, length - 4)
        (protocol,) = struct.unpack("!i", body[:4])
        if protocol >> 16 == 3:
            return
        # It asks for encryption, which this does not have.
        client.sendall(b"N")


def _with_other_key(greeting: bytes) -> bytes:
    """A pooler has cancel keys of its own, so its clients never learn the process of the database."""
    at = greeting.index(b"K\0\0\0")
    return greeting[: at + 5] + struct.pack("!i", 7) + greeting[at + 9 :]


def _until_ready(backend: socket.socket) -> bytes:
    answer = b""
    while True:
        kind, message = _message(backend)
        answer += message
        if kind == b"Z":
            return answer


def _message(end: socket.socket) -> tuple[bytes, bytes]:
    head = _exactly(end, 5)
    (length,) = struct.unpack("!i", head[1:])
    return head[:1], head + _exactly(end, length - 4)


def _exactly(end: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = end.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


@contextmanager
def pooler_before(port: int) -> Iterator[Pooler]:
    pooler = Pooler(port)
    try:
        yield pooler
    finally:
        pooler.close()

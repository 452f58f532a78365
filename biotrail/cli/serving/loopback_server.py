# SPDX-License-Identifier: Apache-2.0
"""An HTTP/1.1 server of a few connections on a loopback address, in one thread.

All that can connect are processes of this machine, of any user. None of them shall keep another
one's request from being answered, nor take memory: a request has a size and a time, and the
connections that get on least make room for new ones. (A limit for each peer would be none: they
all have the same address.) One thread serves all, so none has to be started for a request.
"""

import re
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

from biotrail.recorder.schema.errors import OutputError

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIELD = re.compile(rf"({_TOKEN.pattern}):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*")
_VERSION = re.compile(r"HTTP/\d\.\d")
_BODILESS = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)


class BadRequestError(Exception):
    """A request that is not answered as asked; `args`: the status and why."""


@dataclass(frozen=True)
class Request:
    """The head of a request; a body is not read."""

    method: str
    target: str
    """Path and query, as they were sent; begins with a slash."""
    fields: tuple[tuple[str, str], ...]
    """Header fields in order, names in small letters."""

    def values(self, name: str) -> list[str]:
        return [value for given, value in self.fields if given == name]

    def value(self, name: str) -> str:
        """Return all values of a header field as one list, as RFC 9110 joins them."""
        return ", ".join(self.values(name))


class File(NamedTuple):
    stream: BinaryIO
    size: int


@dataclass(frozen=True)
class Response:
    status: HTTPStatus
    fields: Sequence[tuple[str, str]] = ()
    body: bytes | File = b""
    taken: Callable[[], None] | None = None
    """Called once the peer has closed the connection after it got the whole body."""

    def head(self) -> bytes:
        size = self.body.size if isinstance(self.body, File) else len(self.body)
        length = [] if self.status in _BODILESS else [("Content-Length", str(size))]
        fields = [("Date", formatdate(usegmt=True)), *self.fields, *length, ("Connection", "close")]
        lines = [f"HTTP/1.1 {self.status.value} {self.status.phrase}"]
        lines += [f"{name}: {value}" for name, value in fields]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


def plain(status: HTTPStatus, text: str) -> Response:
    body = f"{text}\n".encode(errors="replace")
    return Response(status, [("Content-Type", "text/plain; charset=utf-8")], body)


def parse(head: bytes) -> Request:
    """Return the request of its head, up to the empty line. Raises BadRequestError."""
    first, *rest = (line.removesuffix("\r") for line in head.decode("latin-1").split("\n"))
    words = first.split(" ")
    if len(words) != 3 or not _VERSION.fullmatch(words[2]):
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "this is no request of HTTP/1.1")
    method, target, version = words
    if not version.startswith("HTTP/1."):
        raise BadRequestError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "HTTP/1.1 alone is served")
    if not _TOKEN.fullmatch(method) or not (target.startswith("/") and target.isprintable()):
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "the method or the path is malformed")
    fields = []
    for line in rest:
        field = _FIELD.fullmatch(line)
        if field is None:
            raise BadRequestError(HTTPStatus.BAD_REQUEST, "a header field is malformed")
        fields.append((field[1].lower(), field[2]))
    return Request(method, target, tuple(fields))


MOST_HEAD_BYTES = 16 << 10
"""Bytes of a request's line and header fields."""
REQUEST_SECONDS = 10.0
"""Time from a connection's beginning to its whole request, however many bytes come meanwhile;
likewise from the response's end to the connection's."""
STALL_SECONDS = 60.0
"""Time for which a peer may take nothing of its response."""
_PIECE = 1 << 18
_HEAD_END = re.compile(rb"\r?\n\r?\n")

Answer = Callable[[Request], Response]


class Connection:
    """A connection, which `step` takes on whenever its socket is ready. The socket never blocks."""

    def __init__(self, peer: socket.socket, answer: Answer, now: float) -> None:
        """now: CLOCK_MONOTONIC in seconds, as all times here."""
        peer.setblocking(False)
        self.socket, self._answer = peer, answer
        self._head = bytearray()
        self._left = memoryview(b"")
        self._body: bytes | File = b""
        self._at = 0
        self._taken: Callable[[], None] | None = None
        self._do = self._read
        self.moved = now
        """When it was made, its response last moved on, or its response ended: a peer that sends
        a request byte by byte does not get on."""
        self.deadline = now + REQUEST_SECONDS
        """When it is to be closed if it has not got on."""

    @property
    def answering(self) -> bool:
        return self._do == self._send

    def step(self, now: float) -> bool:
        """Read or send what is possible at once; return whether the connection goes on."""
        try:
            return self._do(now)
        except BlockingIOError:
            return True
        except OSError:  # it broke off, which is the peer's right
            return False

    def _read(self, now: float) -> bool:
        data = self.socket.recv(MOST_HEAD_BYTES)
        self._head += data
        end = _HEAD_END.search(self._head)
        if (end.end() if end else len(self._head)) > MOST_HEAD_BYTES:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            self._begin(plain(status, f"at most {MOST_HEAD_BYTES} bytes are read"), True, now)
        elif end:
            with_body = True
            try:
                request = parse(bytes(self._head[: end.start()]))
                with_body = request.method != "HEAD"
                if request.method in ("GET", "HEAD", "OPTIONS"):
                    response = self._answer(request)
                else:
                    text = f"{request.method} is not served"
                    response = plain(HTTPStatus.NOT_IMPLEMENTED, text)
            except BadRequestError as error:
                response = plain(*error.args)
            except Exception as error:  # the server outlives a fault of one answer
                status = HTTPStatus.INTERNAL_SERVER_ERROR
                response = plain(status, str(error) or type(error).__name__)
            self._begin(response, with_body, now)
        return bool(data)

    def _begin(self, response: Response, with_body: bool, now: float) -> None:
        self._head.clear()
        self._left = memoryview(response.head())
        if with_body:
            self._body, self._taken = response.body, response.taken
        self._do = self._send
        self.moved, self.deadline = now, now + STALL_SECONDS

    def _send(self, now: float) -> bool:
        """Send more of the response; tell the peer once that was all."""
        if self._left:
            sent = self.socket.send(self._left[:_PIECE])
            self._left = self._left[sent:]
            self.moved, self.deadline = now, now + STALL_SECONDS
        if self._left:
            return True
        if isinstance(self._body, File):
            self._body.stream.seek(self._at)
            piece = self._body.stream.read(min(_PIECE, self._body.size - self._at))
        else:
            piece = b"" if self._at else self._body
        self._at += len(piece)
        self._left = memoryview(piece)
        if piece:
            return True
        if isinstance(self._body, File) and self._at != self._body.size:
            return False  # the file was cut meanwhile
        # What the peer still sends is read, or the kernel would break off the response.
        self.socket.shutdown(socket.SHUT_WR)
        self._do = self._drain
        self.moved, self.deadline = now, now + REQUEST_SECONDS
        return True

    def _drain(self, now: float) -> bool:
        """Forget what the peer sends behind its request, until it closes the connection."""
        if self.socket.recv(_PIECE):
            return True
        if self._taken is not None:
            self._taken()
        return False


MOST_CONNECTIONS = 16
"""Connections at once whose request is waited for, or their end; and as many being answered."""
_ACCEPTED_AT_ONCE = 4
"""So that connections which come quickly do not keep the present ones from getting on."""
_PAUSE = 0.1


class LoopbackServer:
    """Answers requests while the block is entered."""

    def __init__(self, host: str, port: int, answer: Answer) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # SO_REUSEADDR is set: connections of an earlier run in TIME_WAIT do not block the port.
        self._listener = socket.create_server((host, port), family=family)
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        """The port that was bound."""
        self._answer = answer
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._connections: set[Connection] = set()
        self._thread = threading.Thread(target=self._serve, name="server", daemon=True)

    def __enter__(self) -> Self:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise OutputError(
                f"no thread can be started to serve: {error}; see the limits of processes "
                "(ulimit -u, pids.max of the cgroup)"
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._wake.close()
        self._thread.join()
        for one in (self._listener, self._woken, *(c.socket for c in self._connections)):
            one.close()
        self._selector.close()

    def _serve(self) -> None:
        while True:
            first = min((one.deadline for one in self._connections), default=None)
            patience = None if first is None else max(first - time.monotonic(), 0.0)
            ready = {key.fileobj: key.data for key, _ in self._selector.select(patience)}
            if self._woken in ready:
                return
            for connection in filter(None, ready.values()):
                self._step(connection)
            if self._listener in ready:
                self._accept()
            now = time.monotonic()
            for connection in [one for one in self._connections if one.deadline <= now]:
                self._close(connection)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                peer, _address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # no descriptor or memory is left, or the peer has gone
                time.sleep(_PAUSE)
                return
            self._make_room(answering=False)
            connection = Connection(peer, self._answer, time.monotonic())
            self._connections.add(connection)
            self._selector.register(peer, selectors.EVENT_READ, connection)
            self._step(connection)

    def _step(self, connection: Connection) -> None:
        if connection not in self._connections:  # it made room for another one meanwhile
            return
        answering = connection.answering
        try:
            goes_on = connection.step(time.monotonic())
        except MemoryError:  # what this connection holds is given back: others are still served
            goes_on = False
        if not goes_on:
            self._close(connection)
        elif connection.answering != answering:
            if connection.answering:
                self._make_room(answering=True, beside=connection)
            wanted = selectors.EVENT_WRITE if connection.answering else selectors.EVENT_READ
            self._selector.modify(connection.socket, wanted, connection)

    def _make_room(self, *, answering: bool, beside: Connection | None = None) -> None:
        """Close the connection that got on least, if there are MOST_CONNECTIONS besides one."""
        kind = [c for c in self._connections if c.answering == answering and c is not beside]
        if len(kind) >= MOST_CONNECTIONS:
            self._close(min(kind, key=lambda one: one.moved))

    def _close(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._selector.unregister(connection.socket)
        with suppress(OSError):
            connection.socket.close()

# SPDX-License-Identifier: Apache-2.0
"""One connection of a server: its request is read, answered, and its end waited for."""

import re
import socket
from collections.abc import Callable
from http import HTTPStatus

from biotrail.cli.serving.exchange import (
    BadRequestError,
    File,
    Request,
    Response,
    parse,
    plain,
    respond,
)

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
        """Whether the response is being sent, so that writing is waited for, and not reading."""
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
        """Read more of the request; answer it once it is whole."""
        data = self.socket.recv(MOST_HEAD_BYTES)
        self._head += data
        end = _HEAD_END.search(self._head)
        if (end.end() if end else len(self._head)) > MOST_HEAD_BYTES:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            self._begin(plain(status, f"at most {MOST_HEAD_BYTES} bytes are read"), True, now)
        elif end:
            try:
                request = parse(bytes(self._head[: end.start()]))
            except BadRequestError as error:
                self._begin(error.response(), True, now)
            else:
                self._begin(respond(request, self._answer), request.method != "HEAD", now)
        return bool(data)

    def _begin(self, response: Response, with_body: bool, now: float) -> None:
        """Begin to send a response."""
        self._head.clear()
        self._left = memoryview(response.head())
        if with_body:
            self._body, self._taken = response.body, response.taken
        self._do = self._send
        self._get_on(now, STALL_SECONDS)

    def _send(self, now: float) -> bool:
        """Send more of the response; tell the peer once that was all."""
        if self._left:
            sent = self.socket.send(self._left[:_PIECE])
            self._left = self._left[sent:]
            self._get_on(now, STALL_SECONDS)
        if self._left or self._fill():
            return True
        if isinstance(self._body, File) and self._at != self._body.size:
            return False  # the file was cut meanwhile
        # What the peer still sends is read, or the kernel would break off the response.
        self.socket.shutdown(socket.SHUT_WR)
        self._do = self._drain
        self._get_on(now, REQUEST_SECONDS)
        return True

    def _fill(self) -> bool:
        """Take the body's next piece; return whether there was one."""
        if isinstance(self._body, File):
            self._body.stream.seek(self._at)
            piece = self._body.stream.read(min(_PIECE, self._body.size - self._at))
        else:
            piece = b"" if self._at else self._body
        self._at += len(piece)
        self._left = memoryview(piece)
        return bool(piece)

    def _drain(self, now: float) -> bool:
        """Forget what the peer sends behind its request, until it closes the connection."""
        if self.socket.recv(_PIECE):
            return True
        if self._taken is not None:
            self._taken()
        return False

    def _get_on(self, now: float, seconds: float) -> None:
        self.moved, self.deadline = now, now + seconds

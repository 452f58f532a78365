# SPDX-License-Identifier: Apache-2.0
"""An HTTP server of a few connections on a loopback address, in one thread.

All that can connect are processes of this machine, of any user. None of them shall keep another
one's request from being answered, nor take memory: a request has a size and a time, and the
connections that get on least make room for new ones. (A limit for each peer would be none: they
all have the same address.) One thread serves all, so none has to be started for a request.
"""

import selectors
import socket
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

from biotrail.cli.serving.connection import Answer, Connection
from biotrail.recorder.schema.errors import OutputError

MOST_CONNECTIONS = 16
"""Connections at once whose request is waited for, or their end; and as many being answered."""
_ACCEPTED_AT_ONCE = 4
"""So that connections which come quickly do not keep the present ones from getting on."""
_PAUSE = 0.1


class LoopbackServer:
    """Answers requests while the block is entered."""

    def __init__(self, host: str, port: int, answer: Answer) -> None:
        """Bind the address; port 0: a free one. Raises OSError.

        answer: called in the server's thread, for one request at a time.
        """
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
        """Begin to serve. Raises OutputError if no thread can be started."""
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
        """End serving and close the port; connections under way are closed, too."""
        self._wake.close()
        self._thread.join()
        for one in (self._listener, self._woken, *(c.socket for c in self._connections)):
            one.close()
        self._selector.close()

    def _serve(self) -> None:
        """Serve until `_wake` is closed; runs in the thread."""
        while True:
            ready = {key.fileobj: key.data for key, _ in self._selector.select(self._patience())}
            if self._woken in ready:
                return
            for connection in filter(None, ready.values()):
                self._step(connection)
            if self._listener in ready:
                self._accept()
            now = time.monotonic()
            for connection in [one for one in self._connections if one.deadline <= now]:
                self._close(connection)

    def _patience(self) -> float | None:
        """Return the seconds to the next deadline; None: there is none."""
        first = min((one.deadline for one in self._connections), default=None)
        return None if first is None else max(first - time.monotonic(), 0.0)

    def _accept(self) -> None:
        """Take new connections, and what they have sent already."""
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
        """Let a connection that is ready get on."""
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
        """Close the connection that got on least, if there are MOST_CONNECTIONS besides one.

        answering: of those that are being answered, or of the others.
        """
        kind = [c for c in self._connections if c.answering == answering and c is not beside]
        if len(kind) >= MOST_CONNECTIONS:
            self._close(min(kind, key=lambda one: one.moved))

    def _close(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._selector.unregister(connection.socket)
        with suppress(OSError):
            connection.socket.close()

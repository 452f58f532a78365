# SPDX-License-Identifier: Apache-2.0
"""The server of metrics and of view: what it takes, and that nobody keeps others out."""

import io
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus

import pytest

from biotrail.cli.serving import loopback_server as connections
from biotrail.cli.serving.exchange import File, Request, Response, parse, plain
from biotrail.cli.serving.loopback_server import (
    MOST_CONNECTIONS,
    MOST_HEAD_BYTES,
    REQUEST_SECONDS,
    Connection,
    LoopbackServer,
)
from biotrail.recorder.schema.errors import OutputError

HEAD = b"GET /x HTTP/1.1\r\nHost: localhost\r\n"
WHOLE = HEAD + b"\r\n"
LARGE = b"x" * (8 << 20)
"""More than sockets buffer."""
SECONDS = 20.0


class _NoMemory(io.BytesIO):
    def read(self, size: int | None = -1, /) -> bytes:
        raise MemoryError


def answer(request: Request) -> Response:
    """An application with a small and a large answer, and one that breaks."""
    if request.target == "/breaks":
        raise ValueError("what nobody thought of")
    if request.target == "/large":
        return Response(HTTPStatus.OK, (), LARGE)
    if request.target == "/no-memory":
        return Response(HTTPStatus.OK, (), File(_NoMemory(), 1))
    return plain(HTTPStatus.OK, request.target)


@contextmanager
def serving() -> Iterator[LoopbackServer]:
    with LoopbackServer("127.0.0.1", 0, answer) as server:
        yield server


def connected(server: LoopbackServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS)


def asked(server: LoopbackServer, request: bytes) -> bytes:
    """All that comes for a request."""
    with connected(server) as raw:
        raw.sendall(request)
        found = b""
        while data := raw.recv(1 << 16):
            found += data
        return found


def answers(server: LoopbackServer) -> bool:
    return asked(server, WHOLE).endswith(b"\r\n\r\n/x\n")


@pytest.mark.parametrize("count", [1, MOST_CONNECTIONS, 3 * MOST_CONNECTIONS])
def test_slow_requests_keep_no_other_out(count: int) -> None:
    # GIVEN connections whose requests come byte by byte
    with serving() as server, ExitStack() as open_ones:
        slow = [open_ones.enter_context(connected(server)) for _ in range(count)]
        for _ in range(5):
            for one in slow:
                try:
                    one.sendall(b"G")
                except OSError:  # it made room
                    continue
            # WHEN others ask meanwhile THEN they are answered
            assert answers(server)
        # AND no more than the limit are open
        assert len(server._connections) <= 2 * MOST_CONNECTIONS


def test_peers_that_take_no_response_keep_no_other_out() -> None:
    # GIVEN connections that ask for much and read nothing
    with serving() as server, ExitStack() as open_ones:
        for _ in range(3 * MOST_CONNECTIONS):
            one = open_ones.enter_context(connected(server))
            one.sendall(WHOLE.replace(b"/x", b"/large"))
            # WHEN others ask meanwhile THEN they are answered
            assert answers(server)
        # AND no more responses than the limit wait in memory
        assert len([c for c in server._connections if c.answering]) <= MOST_CONNECTIONS


def test_a_whole_large_response_comes_while_others_hold_theirs() -> None:
    # GIVEN as many as may be that take nothing of their response
    large = WHOLE.replace(b"/x", b"/large")
    with serving() as server, ExitStack() as open_ones:
        for _ in range(MOST_CONNECTIONS):
            open_ones.enter_context(connected(server)).sendall(large)
        # WHEN one asks for the same and reads it THEN it gets all
        assert asked(server, large).endswith(b"\r\n\r\n" + LARGE)


def test_connections_need_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a process that can start no thread any more once it serves
    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with serving() as server:
        monkeypatch.setattr(threading.Thread, "start", refused)
        # WHEN it is asked more often than it has places THEN it answers each time
        assert all(answers(server) for _ in range(40))
    # WHEN one shall begin to serve THEN it says why it cannot
    with pytest.raises(OutputError, match=r"can't start new thread.*pids\.max"), serving():
        pass


def test_bytes_of_a_request_give_it_no_more_time() -> None:
    # GIVEN a connection
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = Connection(theirs, answer, 100.0)
        # WHEN bytes of its request come one by one THEN its time remains what it was
        for at in range(5):
            ours.sendall(b"G")
            assert connection.step(101.0 + at)
            assert connection.deadline == 100.0 + REQUEST_SECONDS
            assert connection.moved == 100.0


def test_a_connection_whose_time_is_over_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a server that waits a moment alone for requests
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.05)
    with serving() as server, connected(server) as raw:
        raw.sendall(b"GET /x")
        # WHEN no more of one comes THEN the connection is closed
        assert raw.recv(1) == b""
        assert answers(server)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (HEAD + b"X: " + b"y" * MOST_HEAD_BYTES + b"\r\n\r\n", 431),
        (HEAD + b"".join(b"X-%d: %s\r\n" % (i, b"y" * 60000) for i in range(90)) + b"\r\n", 431),
        (b"A" * 70000 + b" / HTTP/1.1\r\n\r\n", 431),
        (b"GET /x\r\n\r\n", 400),
        (b"GET /x HTTP/9.9\r\n\r\n", 505),
        (b"GET x HTTP/1.1\r\n\r\n", 400),
        (b"GET http://evil/x HTTP/1.1\r\n\r\n", 400),
        (b"G\0T /x HTTP/1.1\r\n\r\n", 400),
        (b"GET /\x01 HTTP/1.1\r\n\r\n", 400),
        (HEAD + b" folded: x\r\n\r\n", 400),
        (HEAD + b"no colon\r\n\r\n", 400),
        (HEAD + b"Space : x\r\n\r\n", 400),
        (HEAD + b"X: \0\r\n\r\n", 400),
        (bytes.fromhex("16030100a5010000a10303") + b"\r\n\r\n", 400),
        (WHOLE.replace(b"GET", b"POST") + b"abc", 501),
        (WHOLE.replace(b"GET", b"BREW"), 501),
        (WHOLE.replace(b"/x", b"/breaks"), 500),
        (WHOLE.replace(b"\r\n", b"\n"), 200),
        (WHOLE.replace(b"HTTP/1.1", b"HTTP/1.0"), 200),
        (WHOLE.replace(b"GET", b"HEAD"), 200),
        (HEAD + b"Content-Length: 3\r\n\r\nabc", 200),
    ],
)
def test_each_request_has_its_status(request_: bytes, status: int) -> None:
    # GIVEN a server WHEN a request comes, whole, broken, or too large THEN it has a status
    with serving() as server:
        found = asked(server, request_)
        assert found.startswith(b"HTTP/1.1 %d " % status)
        assert b"Traceback" not in found
        # AND the next one is answered
        assert answers(server)


def test_of_head_there_is_no_body() -> None:
    # GIVEN a server WHEN asked for the head THEN it tells the size and sends nothing
    with serving() as server:
        head, body = asked(server, WHOLE.replace(b"GET", b"HEAD")).split(b"\r\n\r\n")
        assert b"Content-Length: 3" in head
        assert body == b""


def test_fields_are_read_in_order() -> None:
    # GIVEN fields of one name, in any case
    request = parse(b"GET /a?b HTTP/1.1\r\nAccept: a \r\nHOST:h\r\naccept:\tb")
    # WHEN they are asked for THEN all are there
    assert (request.method, request.target) == ("GET", "/a?b")
    assert (request.values("accept"), request.value("accept")) == (["a", "b"], "a, b")
    assert (request.value("host"), request.value("other")) == ("h", "")


def test_a_response_for_which_there_is_no_memory_ends_its_connection_alone() -> None:
    # GIVEN a server WHEN a response cannot be read for want of memory
    with serving() as server:
        found = asked(server, WHOLE.replace(b"/x", b"/no-memory"))
        # THEN its connection ends without the body, and the next one is answered
        assert found.endswith(b"\r\n\r\n")
        assert answers(server)

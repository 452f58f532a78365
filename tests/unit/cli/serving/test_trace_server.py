# SPDX-License-Identifier: Apache-2.0
import socket
from contextlib import contextmanager

import pytest

from biotrail.cli.serving.trace_server import TraceServer
from biotrail.recorder.schema.errors import OutputError
from tests.support.view_requests import TRACE, UI, ask


@contextmanager
def serving(tmp_path, content=TRACE):
    path = tmp_path / "trace.pftrace"
    path.write_bytes(content)
    with (
        path.open("rb") as trace,
        TraceServer(trace, len(content), "t.pftrace", port=0, origin=UI) as server,
    ):
        yield server


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LocalHost"])
def test_the_ui_gets_the_whole_trace_and_that_is_the_end(tmp_path, host):
    # GIVEN a trace that is served
    with serving(tmp_path) as server:
        # WHEN the UI's origin fetches it by either name
        response, body = ask(server, host=f"{host}:{server.port}")
        # THEN it gets all of it, may read it, and the server is done
        assert (response.status, body) == (200, TRACE)
        assert response.headers["Access-Control-Allow-Origin"] == UI
        assert response.headers["Vary"] == "Origin"
        assert response.headers["Cache-Control"] == "no-store"
        assert server.fetched.wait(20)


def connected(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=20)


REFUSED = {
    "another origin": {"origin": "https://evil.example"},
    "no origin": {"origin": ""},
    "an opaque origin": {"origin": "null"},
    "the origin without TLS": {"origin": "http://ui.perfetto.dev"},
    "a longer origin": {"origin": UI + ".evil.example"},
    "another host": {"host": "evil.example:9001"},
    "the host without its port": {"host": "127.0.0.1"},
    "another path": {"path": "/trace.pftrace"},
    "the root": {"path": "/"},
}


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("how", REFUSED)
def test_whoever_else_asks_is_refused_and_ends_nothing(tmp_path, how, method):
    # GIVEN a trace that is served
    with serving(tmp_path) as server:
        # WHEN someone asks without what the UI has
        response, body = ask(server, method, **REFUSED[how])
        # THEN there is no answer to read, no leave to read it, and no end
        assert response.status in (403, 404)
        assert body == b""
        assert "Access-Control-Allow-Origin" not in response.headers
        assert len(server.refused) == 1
        # AND the UI still gets it
        assert not server.fetched.is_set()
        assert ask(server)[1] == TRACE


def test_two_origins_at_once_are_none(tmp_path):
    # GIVEN a request with two Origin headers / WHEN it arrives / THEN it is refused
    with serving(tmp_path) as server, connected(server) as raw:
        head = f"GET {server.path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
        raw.sendall(f"{head}Origin: {UI}\r\nOrigin: {UI}\r\n\r\n".encode())
        assert raw.recv(100).startswith(b"HTTP/1.1 403")


def test_head_tells_the_size_and_ends_nothing(tmp_path):
    # GIVEN a trace that is served / WHEN the UI asks for its headers / THEN it gets those only
    with serving(tmp_path) as server:
        response, body = ask(server, "HEAD")
        assert (response.status, body) == (200, b"")
        assert response.headers["Content-Length"] == str(len(TRACE))
        assert not server.fetched.is_set()


def test_a_preflight_is_granted_and_ends_nothing(tmp_path):
    # GIVEN a browser that asks before it lets a public page reach this machine
    with serving(tmp_path) as server:
        # WHEN the preflight comes from the UI
        response, _ = ask(
            server,
            "OPTIONS",
            Access_Control_Request_Method="GET",
            Access_Control_Request_Private_Network="true",
        )
        # THEN it is granted
        assert response.status == 204
        assert response.headers["Access-Control-Allow-Origin"] == UI
        assert "GET" in response.headers["Access-Control-Allow-Methods"]
        assert response.headers["Access-Control-Allow-Private-Network"] == "true"
        assert not server.fetched.is_set()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "TRACE"])
def test_other_methods_do_nothing(tmp_path, method):
    # GIVEN a trace that is served / WHEN it is asked for otherwise / THEN nothing is given
    with serving(tmp_path) as server:
        response, body = ask(server, method)
        assert response.status == 501
        assert TRACE[:100] not in body
        assert not server.fetched.is_set()


def test_a_fetch_that_breaks_off_ends_nothing(tmp_path):
    # GIVEN a trace larger than what sockets buffer
    large = TRACE * 50
    with serving(tmp_path, large) as server:
        # WHEN a client goes away in the middle
        with connected(server) as raw:
            head = f"GET {server.path} HTTP/1.1\r\nHost: localhost:{server.port}\r\n"
            raw.sendall(f"{head}Origin: {UI}\r\n\r\n".encode())
            assert raw.recv(1000).startswith(b"HTTP/1.1 200")
        # THEN it can be fetched again
        assert not server.fetched.wait(0.3)
        assert ask(server)[1] == large
        assert server.fetched.wait(20)


def test_only_the_loopback_interface_listens(tmp_path):
    # GIVEN a trace that is served / WHEN its socket is looked at / THEN it is on 127.0.0.1
    with serving(tmp_path) as server:
        assert server._listener.getsockname()[0] == "127.0.0.1"
        assert server.url.startswith(f"http://127.0.0.1:{server.port}/")


def test_paths_cannot_be_guessed(tmp_path):
    # GIVEN two servers / WHEN their paths are compared / THEN each has a long token of its own
    with serving(tmp_path) as one, serving(tmp_path) as two:
        tokens = {one.path.split("/")[1], two.path.split("/")[1]}
        assert len(tokens) == 2
        assert all(len(token) >= 32 for token in tokens)


def test_a_port_that_is_taken_is_an_error_with_a_remedy(tmp_path):
    # GIVEN a port that someone listens on / WHEN it is to be used / THEN the error says what to do
    with serving(tmp_path) as first, pytest.raises(OutputError, match=r"in use.*end that one"):
        TraceServer(first.trace, 1, "t", port=first.port, origin=UI)

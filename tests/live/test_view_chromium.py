# SPDX-License-Identifier: Apache-2.0
"""A real browser fetches the trace as the Perfetto UI would, across origins.

A page under the very origin https://ui.perfetto.dev stands in for the UI: Chromium is told
that this name is a server of ours. The page takes `?url=` from its address as the UI does,
fetches that, and keeps the SHA-256 of what it got.
"""

import ctypes
import errno
import hashlib
import os
import random
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.browser import Page, browser
from tests.support.paths import SAMPLE

UI = "https://ui.perfetto.dev"
PATIENCE = 60

PAGE = b"""<!doctype html><meta charset="utf-8"><title>stand-in</title><script>
(async () => {
  const report = {origin: location.origin};
  try {
    const url = new URLSearchParams(location.hash.slice(location.hash.indexOf('?'))).get('url');
    const response = await fetch(url);
    const data = await response.arrayBuffer();
    const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', data));
    report.bytes = data.byteLength;
    report.sha256 = [...digest].map(b => b.toString(16).padStart(2, '0')).join('');
  } catch (error) { report.error = String(error); }
  window.report = report;
})();
</script>
"""


class Handler(BaseHTTPRequestHandler):
    """Answers with the page."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_):
        pass


CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture(autouse=True)
def own_network():
    """A network namespace of the test's own, whose port 9001 nobody else has.

    Where making one is not permitted, the test takes the machine's.
    """
    with open("/proc/thread-self/ns/net") as before:
        if _libc.unshare(CLONE_NEWNET) != 0:
            assert ctypes.get_errno() == errno.EPERM
            yield
            return
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=PATIENCE)
            yield
        finally:
            assert _libc.setns(before.fileno(), CLONE_NEWNET) == 0


@pytest.fixture
def ui(tmp_path):
    """The port of an HTTPS server with the page, for any name."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
         "-subj", "/CN=ui.perfetto.dev", "-keyout", key, "-out", certificate],
        check=True, capture_output=True, timeout=PATIENCE,
    )  # fmt: skip
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def reported(page: Page, address: str) -> dict:
    """What the page at the address fetched."""
    page.visit(address)
    origin = address.partition("/#")[0]
    return page.until(f"window.report?.origin === '{origin}' && window.report")


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "disk.pftrace"
    path.write_bytes(b"\x0a" + random.Random(1).randbytes(20_000_000))
    return path


@contextmanager
def viewing(source: Path, ui: str = "web"):
    """`biotrail view --no-open` on its usual port; gives the process and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "biotrail.cli.main", "view", "--ui", ui, "--no-open", str(source)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert select.select([process.stdout], [], [], PATIENCE)[0], "it says nothing"
        first = process.stdout.readline()
        if not first.startswith("open "):
            process.kill()
            pytest.fail(first + process.stderr.read())
        yield process, first.removeprefix("open ").strip()
    finally:
        process.kill()
        process.wait(PATIENCE)
        process.stdout.close()
        process.stderr.close()


def test_the_ui_fetches_the_trace_and_a_page_of_another_origin_is_refused(ui, trace):
    # GIVEN a trace that `biotrail view` serves, for the real origin of the UI
    names = dict.fromkeys(("ui.perfetto.dev", "evil.example"), ui)
    with viewing(trace) as (process, address), browser(names=names) as page:
        assert address.startswith(f"{UI}/#!/?url=http://127.0.0.1:9001/")
        # WHEN a page of another origin that knows even the path fetches it in a browser
        report = reported(page, address.replace(UI, "https://evil.example"))
        # THEN the browser gets nothing
        assert "bytes" not in report
        assert "TypeError" in report["error"]
        # AND it ended nothing: a page of the UI's origin gets the file as it is
        assert process.poll() is None
        assert reported(page, address) == {
            "origin": UI,
            "bytes": trace.stat().st_size,
            "sha256": hashlib.sha256(trace.read_bytes()).hexdigest(),
        }
        # AND the command ends
        assert process.wait(PATIENCE) == 0
        assert "the UI has the trace" in process.stdout.read()
        assert "refused a request: origin https://evil.example" in process.stderr.read()


def test_the_packaged_ui_shows_a_log_without_the_internet():
    # GIVEN a log that `biotrail view` serves together with the UI
    with viewing(SAMPLE, "local") as (process, address):
        # WHEN a browser that reaches nothing else opens the address
        with browser() as page:
            page.visit(address)
            # THEN the UI shows the trace, with the tracks that the address pins
            page.until("document.querySelector('.pf-viewer-page, .pf-timeline-page') !== null")
            page.until("document.body?.innerText.includes('slowest I/Os')")
            page.until("document.body?.innerText.includes('block I/O')")
            # AND it asked nobody but this server, and nothing failed
            ours = address.partition("/#")[0].rpartition("/")[0]
            assert [url for url in page.asked.values() if not of_ours(url, ours)] == []
            assert [what for what in page.said if "LiveReload" not in what] == []
            # AND after a reload it does so again
            page.call("Page.reload")
            page.until("document.body?.innerText.includes('block I/O')")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        assert "the UI has the trace, and is served until Ctrl-C" in out
        assert err == ""


def of_ours(url: str, ours: str) -> bool:
    """Whether a URL is of our server, or no request at all."""
    return url.startswith((f"{ours}/", "blob:", "data:", "about:"))


@pytest.fixture(scope="module")
def taken_port():
    """The port of the machine's own network, taken, as by another `biotrail view`."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", 9001))
            listener.listen()
        except OSError as error:
            assert error.errno == errno.EADDRINUSE  # so it is taken already
        yield


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a network of its own")
def test_a_port_that_is_taken_elsewhere_is_in_nobodys_way(taken_port, trace):
    # GIVEN port 9001 of this machine, taken / WHEN a trace is viewed here / THEN it is served
    with viewing(trace) as (_, address):
        assert address.startswith(f"{UI}/#!/?url=http://127.0.0.1:9001/")

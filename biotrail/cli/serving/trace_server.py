# SPDX-License-Identifier: Apache-2.0
"""An HTTP server on the loopback interface that gives one trace to the Perfetto UI only.

Any page in the user's browser can send requests to 127.0.0.1. A request must therefore have the
right Host (against DNS rebinding), the UI's Origin, and a path with a token that cannot be
guessed. A refused request does not end the server.
"""

import errno
import secrets
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import BinaryIO, Self

from biotrail.recorder.schema.errors import OutputError

LOOPBACK = "127.0.0.1"
_TOKEN_BYTES = 24
_PATIENCE = 60.0
"""Timeout of a connection in seconds."""


class TraceServer:
    """Serves `trace` at `url`, and sets `fetched` once it was fetched whole. A context manager."""

    def __init__(self, trace: BinaryIO, size: int, name: str, *, port: int, origin: str) -> None:
        """Bind 127.0.0.1:port; 0: a free port. size: bytes; name: the last part of the path.

        Raises OutputError if the port cannot be bound.
        """
        self.fetched = threading.Event()
        self.refused: list[str] = []
        """Why requests were refused, oldest first; at most 100."""
        self.path = f"/{secrets.token_urlsafe(_TOKEN_BYTES)}/{name}"
        self.origin = origin
        self.trace, self.size = trace, size
        self._server = _bind(port, self)
        self.port = int(self._server.server_address[1])
        self.hosts = {f"{LOOPBACK}:{self.port}", f"localhost:{self.port}"}
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    @property
    def url(self) -> str:
        """The trace's URL, with the secret path."""
        return f"http://{LOOPBACK}:{self.port}{self.path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop serving, close the port, and wait for the server's thread.

        Connections under way are not waited for: their threads are daemons.
        """
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def note_refusal(self, why: str) -> None:
        """Add a reason to `refused`, unless it is full."""
        if len(self.refused) < 100:
            self.refused.append(why)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    """SO_REUSEADDR: connections of an earlier view in TIME_WAIT do not block the port."""

    def __init__(self, port: int, owner: TraceServer) -> None:
        self.owner = owner
        super().__init__((LOOPBACK, port), _Handler)

    def server_bind(self) -> None:
        """Bind without HTTPServer's look-up of the host's name (getfqdn), which may be slow."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = LOOPBACK, int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a connection that breaks off: print no traceback."""


def _bind(port: int, owner: TraceServer) -> _Server:
    """Return a server bound to the port. Raises OutputError, with a remedy, if it cannot be."""
    try:
        return _Server(port, owner)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            reason = (
                "is in use, perhaps by another `biotrail view` or trace_processor: end that one. "
                "The Perfetto UI fetches from port 9001 only"
            )
        else:
            reason = f"cannot be opened: {error.strerror}. Choose another one with --port"
        raise OutputError(f"Port {port} of {LOOPBACK} {reason}.") from error


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "biotrail", ""
    timeout = _PATIENCE
    server: _Server

    def do_GET(self) -> None:
        """Send the whole trace."""
        if self._allowed() and self._respond(HTTPStatus.OK):
            self._send_trace()

    def do_HEAD(self) -> None:
        """Send the headers of GET without the trace."""
        if self._allowed():
            self._respond(HTTPStatus.OK)

    def do_OPTIONS(self) -> None:
        """Answer a CORS preflight request."""
        if not self._allowed():
            return
        self.send_response(HTTPStatus.NO_CONTENT)
        self._send_cors()
        self.send_header("Access-Control-Allow-Methods", "GET, HEAD")
        wanted = self.headers.get("Access-Control-Request-Headers")
        if wanted:
            self.send_header("Access-Control-Allow-Headers", "Range, Cache-Control")
        # Chromium asks with these headers before a public page may reach a private address.
        for name in ("Private-Network", "Local-Network"):
            if self.headers.get(f"Access-Control-Request-{name}") == "true":
                self.send_header(f"Access-Control-Allow-{name}", "true")
        self.send_header("Access-Control-Max-Age", "0")
        self._finish_headers()

    def _allowed(self) -> bool:
        """Return whether host, origin and path are right; if not, answer with an error."""
        owner = self.server.owner
        hosts = self.headers.get_all("Host", [])
        origins = self.headers.get_all("Origin", [])
        if len(hosts) != 1 or hosts[0].lower() not in owner.hosts:
            return self._refuse(HTTPStatus.FORBIDDEN, "host", hosts)
        if origins != [owner.origin]:
            return self._refuse(HTTPStatus.FORBIDDEN, "origin", origins)
        if not secrets.compare_digest(self.path.encode("latin-1"), owner.path.encode()):
            return self._refuse(HTTPStatus.NOT_FOUND, "path", [])
        return True

    def _refuse(self, status: HTTPStatus, what: str, given: list[str]) -> bool:
        self.server.owner.note_refusal(f"{what} {', '.join(given) or 'wrong or missing'}"[:100])
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self._finish_headers()
        return False

    def _respond(self, status: HTTPStatus) -> bool:
        """Send the status and the headers of a response that holds the whole trace; return True."""
        self.send_response(status)
        self._send_cors()
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(self.server.owner.size))
        self._finish_headers()
        return True

    def _send_cors(self) -> None:
        self.send_header("Access-Control-Allow-Origin", self.server.owner.origin)
        self.send_header("Vary", "Origin")

    def _finish_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Connection", "close")
        self.close_connection = True
        self.end_headers()

    def _send_trace(self) -> None:
        """Send the file; set `fetched` once the client has closed after the last byte."""
        owner = self.server.owner
        self.wfile.flush()
        try:
            if owner.size:
                sent = self.connection.sendfile(owner.trace, 0, owner.size)
                if sent != owner.size:
                    return
            self.connection.shutdown(socket.SHUT_WR)
            while self.connection.recv(4096):
                pass
        except OSError:
            return  # the connection broke off: the UI may try again
        owner.fetched.set()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: `biotrail view` prints refused requests."""

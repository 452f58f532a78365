# SPDX-License-Identifier: Apache-2.0
"""An HTTP server on the loopback interface that gives one trace to the Perfetto UI only.

Any page in the user's browser can send requests to 127.0.0.1. A request must therefore have the
right Host (against DNS rebinding), the UI's Origin, and a path with a token that cannot be
guessed. A refused request does not end the server.
"""

import errno
import os
import secrets
import threading
from http import HTTPStatus
from typing import BinaryIO

from biotrail.cli.serving.exchange import File, Request, Response
from biotrail.cli.serving.loopback_server import LoopbackServer
from biotrail.recorder.schema.errors import OutputError

LOOPBACK = "127.0.0.1"
_TOKEN_BYTES = 24
ALWAYS = (("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"))


class TraceServer(LoopbackServer):
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
        self.trace = trace
        self._body = File(trace, size)
        try:
            super().__init__(LOOPBACK, port, self._respond)
        except OSError as error:
            raise OutputError(_cannot(port, error)) from error

    @property
    def url(self) -> str:
        """The trace's URL, with the secret path."""
        return f"http://{LOOPBACK}:{self.port}{self.path}"

    def _respond(self, request: Request) -> Response:
        """Return the whole trace, or leave to ask for it."""
        if refused := self._refusal(request):
            return refused
        if request.method == "OPTIONS":
            return self._preflight(request)
        fields = [*self._cors(), ("Content-Type", "application/octet-stream"), *ALWAYS]
        return Response(HTTPStatus.OK, fields, self._body, self.fetched.set)

    def _refusal(self, request: Request) -> Response | None:
        """Return the response to a request whose host, origin or path is wrong; note why."""
        hosts, origins = request.values("host"), request.values("origin")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts():
            return self._refuse(HTTPStatus.FORBIDDEN, "host", hosts)
        if not self._trusts(origins):
            return self._refuse(HTTPStatus.FORBIDDEN, "origin", origins)
        if not self._known(request.target):
            return self._refuse(HTTPStatus.NOT_FOUND, "path", [])
        return None

    def _hosts(self) -> set[str]:
        """Return the values of Host that are right, in small letters."""
        return {f"{LOOPBACK}:{self.port}", f"localhost:{self.port}"}

    def _trusts(self, origins: list[str]) -> bool:
        """Return whether a request with these values of Origin is answered."""
        return origins == [self.origin]

    def _known(self, target: str) -> bool:
        """Return whether something is served at a path."""
        return secrets.compare_digest(target.encode("latin-1"), self.path.encode())

    def _refuse(self, status: HTTPStatus, what: str, given: list[str]) -> Response:
        if len(self.refused) < 100:
            self.refused.append(f"{what} {', '.join(given) or 'wrong or missing'}"[:100])
        return Response(status, ALWAYS)

    def _preflight(self, request: Request) -> Response:
        """Return the response to a CORS preflight request."""
        fields = [*self._cors(), ("Access-Control-Allow-Methods", "GET, HEAD")]
        if request.value("access-control-request-headers"):
            fields.append(("Access-Control-Allow-Headers", "Range, Cache-Control"))
        # Chromium asks with these headers before a public page may reach a private address.
        for name in ("Private-Network", "Local-Network"):
            if request.value(f"access-control-request-{name.lower()}") == "true":
                fields.append((f"Access-Control-Allow-{name}", "true"))
        fields.append(("Access-Control-Max-Age", "0"))
        return Response(HTTPStatus.NO_CONTENT, [*fields, *ALWAYS])

    def _cors(self) -> list[tuple[str, str]]:
        return [("Access-Control-Allow-Origin", self.origin), ("Vary", "Origin")]


def _cannot(port: int, error: OSError) -> str:
    """Return the message for a port that cannot be bound, with a remedy."""
    if error.errno == errno.EADDRINUSE:
        reason = (
            "is in use, perhaps by another `biotrail view` or trace_processor: end that one. "
            "https://ui.perfetto.dev fetches from port 9001 only; --ui local takes any --port"
        )
    else:
        reason = (
            f"cannot be opened: {os.strerror(error.errno or 0)}. Choose another one with --port"
        )
    return f"Port {port} of {LOOPBACK} {reason}."

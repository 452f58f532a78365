# SPDX-License-Identifier: Apache-2.0
"""An HTTP server on the loopback interface that gives one trace, and the UI to look at it.

The UI and the trace are below a path with a token that cannot be guessed, and no other page may
embed or read them. What is served was listed and opened beforehand, so that no path leads out.
"""

import os
import secrets
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import PurePosixPath
from types import TracebackType
from typing import BinaryIO

from biotrail.cli.serving.exchange import File, Request, Response
from biotrail.cli.serving.packaged_ui import PackagedUi
from biotrail.cli.serving.trace_server import ALWAYS, LOOPBACK, TraceServer
from biotrail.recorder.schema.errors import OutputError

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
        """Bind 127.0.0.1:port; 0: a free one. size: bytes; name: the last part of the trace's path.

        Raises OutputError if the port cannot be bound, or a file of the UI not be opened.
        """
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

    @property
    def page(self) -> str:
        """The UI's URL, without the slash at its end."""
        return self.origin + self._root.rstrip("/")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End serving, and close the UI's files."""
        super().__exit__(kind, error, traceback)
        self._opened.close()

    def _respond(self, request: Request) -> Response:
        """Return the trace or a file of the UI."""
        if request.target == _LIVE_RELOAD:
            return Response(HTTPStatus.NO_CONTENT, _GUARDS)
        if refused := self._refusal(request):
            return refused
        if request.method == "OPTIONS":  # a preflight: there is no leave for other origins
            return Response(HTTPStatus.METHOD_NOT_ALLOWED, _GUARDS)
        path, _, _query = request.target.partition("?")
        if path == self.path:
            kind, body, taken = "application/octet-stream", self._body, self.fetched.set
        else:
            (kind, body), taken = self._files[path.removeprefix(self._root)], None
        return Response(HTTPStatus.OK, [("Content-Type", kind), *_GUARDS], body, taken)

    def _hosts(self) -> set[str]:
        # By another name it would be another origin, which may not fetch the trace.
        return {f"{LOOPBACK}:{self.port}"}

    def _trusts(self, origins: list[str]) -> bool:
        # Browsers send none with most requests of a page to its own origin.
        return origins in ([], [self.origin])

    def _known(self, target: str) -> bool:
        path, _, _query = target.partition("?")
        root, rest = path[: len(self._root)], path[len(self._root) :]
        ours = secrets.compare_digest(root.encode("latin-1"), self._root.encode())
        return ours and (path == self.path or rest in self._files)

# SPDX-License-Identifier: Apache-2.0
"""An HTTP server on a loopback address that gives figures to Prometheus.

Any page in a user's browser can send requests to a loopback address, and read the answer if its
own name leads there (DNS rebinding). So a request must have the right Host.
"""

import errno
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterable
from http import HTTPStatus
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import Any, NamedTuple, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from biotrail.recorder.schema.errors import OutputError, TraceError

DEFAULT = "127.0.0.1:9477"
_PATIENCE = 10.0
"""Timeout of a connection in seconds, that of Prometheus' scrapes."""
_MOST_CONNECTIONS = 16
"""Connections at once; further ones are closed."""
_LOCAL = "localhost"

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Address(NamedTuple):
    """A loopback address and a port; 0: a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return it as it stands in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Return the address of `127.0.0.1:9477`, `[::1]:9477`, `localhost:9477` or `:9477`.

    Raises ValueError, with a message for the user: it is none of these, or no loopback address.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"{text!r} is no address: write {DEFAULT}")
    host = host.removeprefix("[").removesuffix("]")
    if host in ("", _LOCAL):
        return Address("127.0.0.1", int(port))
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise ValueError(
            f"{host!r} is no loopback address: metrics are served on this machine alone; for "
            "scrapes from others put a proxy with TLS and a password before it (docs/metrics.md)"
        )
    return Address(host, int(port))


class MetricsServer:
    """Serves an application at `address` while the block is entered."""

    def __init__(self, address: Address, application: Application) -> None:
        """Bind the address. Raises OutputError, with a remedy, if it cannot be bound."""
        try:
            self._server = _Server(address)
        except OSError as error:
            raise OutputError(_cannot(address, error)) from error
        self.address = Address(address.host, int(self._server.server_address[1]))
        """The address with the port that was bound."""
        hosts = {address.host.lower(), f"[{address.host.lower()}]", _LOCAL}
        self._server.set_app(_guarded(application, hosts))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    def __enter__(self) -> Self:
        """Begin to serve."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End serving and close the port; connections under way are not waited for."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _cannot(address: Address, error: OSError) -> str:
    """Return the message for an address that cannot be bound."""
    if error.errno == errno.EADDRINUSE:
        return (
            f"{address} is in use, perhaps by another `biotrail metrics`: end that one, or choose "
            "another port with --listen"
        )
    return f"{address} cannot be opened: {error.strerror}; choose another one with --listen"


def _guarded(application: Application, hosts: set[str]) -> Application:
    """Return the application behind a check of the request's Host; errors become status 500."""

    def guarded(environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        host = str(environ.get("HTTP_HOST", "")).lower()
        if host.rpartition(":")[0] not in hosts and host not in hosts:
            return _plain(respond, HTTPStatus.FORBIDDEN, "wrong Host: ask for the loopback address")
        try:
            return application(environ, respond)
        except TraceError as error:
            return _plain(respond, HTTPStatus.INTERNAL_SERVER_ERROR, str(error))

    return guarded


def _plain(respond: Callable[..., Any], status: HTTPStatus, text: str) -> list[bytes]:
    """Answer a request with a status and a line of text."""
    body = f"{text}\n".encode()
    headers = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
    respond(f"{status.value} {status.phrase}", headers)
    return [body]


class _Handler(WSGIRequestHandler):
    timeout = _PATIENCE
    server_version, sys_version = "biotrail", ""

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def get_stderr(self) -> Any:
        """Return a file that forgets what is written: a scrape that breaks off is no error."""
        return _Silent()


class _Silent:
    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    """SO_REUSEADDR: connections of an earlier run in TIME_WAIT do not block the port."""

    def __init__(self, address: Address) -> None:
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        if ":" in address.host:
            self.address_family = socket.AF_INET6
        super().__init__((address.host, address.port), _Handler)

    def server_bind(self) -> None:
        """Bind without HTTPServer's look-up of the host's name (getfqdn), which may be slow."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, or close it if there are too many."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection; then another one may come."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a connection that breaks off: print no traceback."""

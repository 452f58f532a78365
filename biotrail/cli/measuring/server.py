# SPDX-License-Identifier: Apache-2.0
"""The server on a loopback address that gives figures to Prometheus.

Any page in a user's browser can send requests to a loopback address, and read the answer if its
own name leads there (DNS rebinding). So a request must have the right Host.
"""

import errno
import ipaddress
import os
from http import HTTPStatus
from typing import NamedTuple

import click

from biotrail.cli.serving.loopback_server import Answer, LoopbackServer, Request, Response, plain
from biotrail.recorder.schema.errors import OutputError
from biotrail.text import units

DEFAULT = "127.0.0.1:9477"
_LOCAL = "localhost"


class Address(NamedTuple):
    """A loopback address and a port; 0: a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Return the address of `127.0.0.1:9477`, `[::1]:9477`, `localhost:9477` or `:9477`."""
    host, colon, given = text.rpartition(":")
    port = units.whole(given, 0, 65535) if colon else None
    if port is None:
        raise click.BadParameter(f"{text!r} is no address: write {DEFAULT}")
    host = host.removeprefix("[").removesuffix("]")
    if host in ("", _LOCAL):
        return Address("127.0.0.1", port)
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise click.BadParameter(
            f"{host!r} is no loopback address: metrics are served on this machine alone; for "
            "scrapes from others put a proxy with TLS and a password before it (docs/metrics.md)"
        )
    return Address(host, port)


class MetricsServer(LoopbackServer):
    """Serves an application at `address` while the block is entered."""

    def __init__(self, address: Address, application: Answer) -> None:
        hosts = {address.host.lower(), f"[{address.host.lower()}]", _LOCAL}
        try:
            super().__init__(address.host, address.port, guarded(application, hosts))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                why = (
                    f"{address} is in use, perhaps by another `biotrail metrics`: end that one, or "
                    "choose another port with --listen"
                )
            else:
                reason = os.strerror(error.errno or 0)
                why = f"{address} cannot be opened: {reason}; choose another one with --listen"
            raise OutputError(why) from error
        self.address = Address(address.host, self.port)
        """The address with the port that was bound."""


def guarded(application: Answer, hosts: set[str]) -> Answer:
    """Return the application behind a check of the request's Host; its port may be a tunnel's."""

    def answer(request: Request) -> Response:
        host = request.value("host").lower()
        if host.rpartition(":")[0] not in hosts and host not in hosts:
            return plain(HTTPStatus.FORBIDDEN, "wrong Host: ask for the loopback address")
        return application(request)

    return answer

# SPDX-License-Identifier: Apache-2.0
"""Ports of this machine."""

import socket


def free_port() -> int:
    """Return a port of this machine at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])

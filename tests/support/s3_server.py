# SPDX-License-Identifier: Apache-2.0
"""An S3-compatible server on this machine (moto's), and the environment that leads to it."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from pyarrow import fs

from tests.support.ports import free_port

SECONDS = 60
PROCESS = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1"]


@dataclass(frozen=True)
class S3Server:
    """A server that listens on a port of this machine."""

    port: int

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs to find the server, in place of its own machine's settings."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }

    def files(self) -> fs.S3FileSystem:
        """Return a file system of the server that may make buckets."""
        return fs.S3FileSystem(
            access_key="key",
            secret_key="secret",
            region="us-east-1",
            scheme="http",
            endpoint_override=f"127.0.0.1:{self.port}",
            allow_bucket_creation=True,
            allow_bucket_deletion=True,
        )


@contextmanager
def s3_server(port: int | None = None, **environment: str) -> Iterator[S3Server]:
    """Run a server without buckets until the block ends. environment: more variables for it."""
    server = S3Server(port or free_port())
    process = subprocess.Popen(
        [*PROCESS, "-p", str(server.port)],
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait(server, process)
        yield server
    finally:
        process.kill()
        process.wait(SECONDS)


def _wait(server: S3Server, process: subprocess.Popen[bytes]) -> None:
    """Wait until the server takes connections."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, "the server ended: is moto[server] installed?"
        with suppress(OSError), socket.create_connection(("127.0.0.1", server.port), 1):
            return
        time.sleep(0.05)
    raise AssertionError("the server takes no connections")

# SPDX-License-Identifier: Apache-2.0
"""Has bcc compile and load programs in a child process (child.py)."""

import json
import os
import platform
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from biotrail.recorder.probes.bcc import child as bcc_child
from biotrail.recorder.probes.bcc import headers as bcc_headers
from biotrail.recorder.schema.errors import ProbeError

_MAX_DESCRIPTORS = 64
_QUOTED = 6
INSTALL_BCC = "apt-get install python3-bpfcc (or your system's name for it)"


class TooBigError(ProbeError):
    """The kernel refused maps of this size; smaller ones may load."""


def require() -> str:
    """Return the directory of the package bcc. Raises ProbeError: bcc or headers are missing."""
    place = bcc_child.find_bcc()
    if place is None:
        raise ProbeError(f"the bcc backend needs bcc, which is not installed: {INSTALL_BCC}")
    if bcc_headers.find() is None:
        raise ProbeError(f"the bcc backend needs a kernel's headers: {bcc_headers.missing()}")
    return place


def load(text: str, programs: list[str], maps: list[str]) -> dict[str, int]:
    """Have a child process load C text; return descriptors of programs and maps by name.

    Raises TooBigError: maps were too large; ProbeError.
    """
    request = {"text": text, "programs": programs, "maps": maps, "place": require()}
    kernel_headers = bcc_headers.resolve(bcc_headers.find() or Path())
    request["flags"], named = kernel_headers.flags(), {}
    if kernel_headers.directory is not None:
        named = {bcc_headers.NAMED: str(kernel_headers.directory)}
    ours, theirs = socket.socketpair()
    with ours, tempfile.TemporaryFile() as said:
        with theirs:
            child = subprocess.Popen(
                # -I: modules in PYTHONPATH or the current directory cannot be imported.
                [sys.executable, "-I", "-B", bcc_child.__file__],
                stdin=theirs.fileno(),
                stdout=said,
                stderr=said,
                start_new_session=True,
                env={**os.environ, **named},
            )
        answer: dict[str, Any] = {}
        descriptors: list[int] = []
        try:
            ours.sendall(json.dumps(request).encode())
            ours.shutdown(socket.SHUT_WR)
            data, descriptors, _, _ = socket.recv_fds(ours, 1 << 16, _MAX_DESCRIPTORS)
            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)
            answer = json.loads(data) if data else {}
        except OSError as error:
            answer = {"error": str(error)}
        finally:
            child.kill()
            child.wait()
        names = [*programs, *maps]
        if "error" in answer or len(names) != len(descriptors):
            for descriptor in descriptors:
                os.close(descriptor)
            said.seek(0)
            raise failure(
                answer.get("error", "it ended early"), said.read().decode("utf-8", "replace")
            )
    return dict(zip(names, descriptors, strict=True))


def failure(error: str, said: str) -> ProbeError:
    """Return the error for the child's answer `error`, and what compiler and verifier `said`."""
    if re.search(r"Argument list too long|Cannot allocate memory", said):
        return TooBigError("the kernel refuses rings of this size: choose a smaller --buffer-size")
    lines = [line for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower()][:_QUOTED]
    # Without a line that has "error" in it, the last ones: the verifier gives its reason last.
    quoted = "\n  ".join(["", *(telling or lines[-_QUOTED:])])
    if "No module named" in error or error.startswith(("ImportError", "SyntaxError")):
        version = platform.python_version()
        return ProbeError(
            f"bcc in {bcc_child.find_bcc()} does not work with Python {version} ({error}): install "
            "bcc for this Python, or run biotrail with the distribution's Python"
        )
    if "kernel headers" in said or "kconfig.h" in said:
        where, remedy = bcc_headers.find(), bcc_headers.remedy()
        return ProbeError(f"bcc cannot use the kernel's headers in {where}: {remedy}{quoted}")
    return ProbeError(f"bcc could not load the programs ({error}).{quoted}")

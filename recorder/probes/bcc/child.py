# SPDX-License-Identifier: Apache-2.0
"""A program of its own that has bcc compile and load programs, and passes their descriptors.

bcc brings a compiler's hundreds of megabytes, changes the working directory and prints to
standard error; all that ends with this process. The only import besides the standard library
is bcc, which is installed for the distribution's Python: it is loaded from its directory, so
that a virtual environment gets bcc and no other package of that Python.

Standard input is a socket, from which one JSON object is read up to the end of the stream:
"text" (C source), "programs" and "maps" (names of functions and maps), "place" (bcc's directory)
and "flags" (of the compiler). The answer is JSON too: {"error": text}, or {} and, with it, the
descriptors of programs, then of maps (SCM_RIGHTS).
"""

import glob
import importlib.util
import json
import os
import re
import socket
import sys
from typing import Any

_PLACES = (
    "/usr/lib/python3/dist-packages",
    "/usr/lib/python{0}.{1}/site-packages",
    "/usr/lib64/python{0}.{1}/site-packages",
    "/usr/local/lib/python{0}.{1}/*-packages",
    "/usr/lib*/python3*/*-packages",
    "/usr/local/lib*/python3*/*-packages",
)
_TRACEPOINT = 5
"""BPF_PROG_TYPE_TRACEPOINT."""


def find_bcc() -> str | None:
    """Return the path of the Python package bcc itself (…/dist-packages/bcc); None: not installed.

    Of several versions of Python the newest: 3.11 before 3.9. Another package of that name is
    skipped, known by its lack of libbcc.py.
    """

    def version(path: str) -> tuple[list[int], str]:
        found = re.findall(r"/python([0-9]+(?:\.[0-9]+)*)", path)
        return [int(part) for part in found[-1].split(".")] if found else [], path

    directories: list[str] = []
    for place in _PLACES:
        found = glob.glob(place.format(*sys.version_info[:2]))
        directories += sorted(found, key=version, reverse=True)
    for path in [*directories, *sys.path]:
        if path and os.path.exists(os.path.join(path, "bcc", "libbcc.py")):
            return os.path.join(path, "bcc")
    return None


def _load(request: dict[str, Any]) -> list[int]:
    """Return the descriptors of the programs and then the maps; raises as bcc does."""
    place = request["place"]
    spec = importlib.util.spec_from_file_location(
        "bcc", os.path.join(place, "__init__.py"), submodule_search_locations=[place]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{place} is no package")
    bcc: Any = importlib.util.module_from_spec(spec)
    sys.modules["bcc"] = bcc
    spec.loader.exec_module(bcc)
    # -w: no warnings from the kernel's headers, which were written for another compiler.
    bpf = bcc.BPF(text=request["text"].encode(), cflags=["-w", *request["flags"]])
    programs = [bpf.load_func(name, _TRACEPOINT).fd for name in request["programs"]]
    maps = [bcc.lib.bpf_table_fd(bpf.module, name.encode()) for name in request["maps"]]
    return [*programs, *maps]


def main() -> None:
    with socket.socket(fileno=os.dup(0)) as peer:
        data = b"".join(iter(lambda: peer.recv(1 << 16), b""))
        answer, descriptors = {}, []
        try:
            descriptors = _load(json.loads(data))
        except BaseException as error:  # load.failure turns whatever bcc raises into a message
            answer = {"error": f"{type(error).__name__}: {error}"}
        socket.send_fds(peer, [json.dumps(answer).encode()], descriptors)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Run as a program of its own: has bcc compile and load, and hands the descriptors over.

bcc brings a compiler's hundreds of megabytes, changes the working directory and prints to
standard error; all that ends with this process. It imports nothing but the standard library
and bcc, which belongs to the distribution's Python: it is taken from its directory by name,
so that a virtual environment sees bcc and nothing else of what lies there.

Standard input is a socket. It gets {"text", "programs", "maps", "place", "flags" of the
compiler} as JSON up to the end of the stream, and answers with JSON, {"error"} or {"programs",
"maps"}: names, in the order of the descriptors that come with it.
"""

import glob
import importlib.util
import json
import os
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
    """The directory of the Python package bcc; None: not installed.

    Another package of that name is passed over: bcc's has libbcc.py.
    """
    patterns = [place.format(*sys.version_info[:2]) for place in _PLACES]
    found = [path for pattern in patterns for path in sorted(glob.glob(pattern), reverse=True)]
    for path in [*found, *sys.path]:
        if path and os.path.exists(os.path.join(path, "bcc", "libbcc.py")):
            return os.path.join(path, "bcc")
    return None


def import_bcc(place: str) -> Any:
    """The package in the directory `place`, without its neighbours on the path."""
    spec = importlib.util.spec_from_file_location(
        "bcc", os.path.join(place, "__init__.py"), submodule_search_locations=[place]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{place} is no package")
    module = importlib.util.module_from_spec(spec)
    sys.modules["bcc"] = module
    spec.loader.exec_module(module)
    return module


def _load(request: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    bcc = import_bcc(request["place"])
    # -w: the kernel's headers are another compiler's.
    bpf = bcc.BPF(text=request["text"].encode(), cflags=["-w", *request["flags"]])
    programs = [bpf.load_func(name, _TRACEPOINT).fd for name in request["programs"]]
    maps = [bcc.lib.bpf_table_fd(bpf.module, name.encode()) for name in request["maps"]]
    answer = {"programs": request["programs"], "maps": request["maps"]}
    return answer, [*programs, *maps]


def main() -> None:
    """Answers one request."""
    with socket.socket(fileno=os.dup(0)) as peer:
        data = b"".join(iter(lambda: peer.recv(1 << 16), b""))
        try:
            answer, descriptors = _load(json.loads(data))
        except BaseException as error:  # whatever bcc raises is the other side's to judge
            answer, descriptors = {"error": f"{type(error).__name__}: {error}"}, []
        socket.send_fds(peer, [json.dumps(answer).encode()], descriptors)


if __name__ == "__main__":
    main()

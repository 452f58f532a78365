# SPDX-License-Identifier: Apache-2.0
"""C that BPF programs have, compiled for this machine."""

import ctypes
import subprocess
from pathlib import Path
from typing import Any

Function = tuple[Any, tuple[Any, ...]]
"""What it returns, and its arguments, as ctypes has them."""


def library(directory: Path, source: str, functions: dict[str, Function]) -> ctypes.CDLL:
    """Compile a source in the directory; return it with these functions."""
    text, built = directory / "source.c", directory / "built.so"
    text.write_text(source)
    subprocess.run(["clang", "-w", "-shared", "-fPIC", "-O2", "-o", built, text], check=True)
    found = ctypes.CDLL(str(built))
    for name, (result, arguments) in functions.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compile the modules that are faster compiled, in place, where their source is newer.

`pip install` does the same for a wheel (setup.py); this is for the tree that is worked on: a
compiled module hides the source beside it. Without Cython or a compiler the old results are
removed, and the exit status is 1: recording works without them, reading logs does not.

Modules are compiled for CPython's stable ABI, so that one result, and one wheel for each platform,
serves 3.11 and later.
"""

import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import join_parts

if TYPE_CHECKING:
    from setuptools import Extension

ROOT = Path(__file__).resolve().parent.parent
JOINED = ROOT / "build" / "joined"
"""Where sources that are joined of parts are written, for Cython."""
NEEDED = (
    "reading logs needs the compiled modules: install a C compiler and Python's headers "
    "(Debian: gcc and python3-dev; Fedora: gcc and python3-devel)"
)
STABLE = not sysconfig.get_config_var("Py_GIL_DISABLED")
"""Whether this Python has the stable ABI; free-threaded ones have none yet."""
OLDEST = "0x030B0000"
"""The oldest CPython whose stable ABI is meant: 3.11, the first with buffers in it."""
SUFFIX = ".abi3.so" if STABLE else sysconfig.get_config_var("EXT_SUFFIX")
SHARED = "biotrail._cython"
"""What the compiled modules share, Cython's memoryviews: a module without a source of its own.

Compiled into each of them, it would take two thirds of the time and of the bytes.
"""
COMPILED = (
    "biotrail.converters.analysis.blame.share_loops",
    "biotrail.converters.analysis.distributions.sum_loops",
    "biotrail.converters.events.decoding_loops",
    "biotrail.converters.events.distinct_loops",
    "biotrail.converters.inputs.perf.walk_loops",
    "biotrail.converters.inputs.line_loops",
    "biotrail.converters.inputs.perfetto.wire_loops",
    "biotrail.converters.outputs.perfetto.loops",
    "biotrail.converters.match.compiled",
    "biotrail.recorder.log.column_loops",
)
"""Modules to compile; setup.py reads them here."""


def _path_of(module: str) -> Path:
    return ROOT / (module.replace(".", "/") + ".py")


def source_for_cython(module: str) -> Path:
    """Return the path of a module's source, which is written first if it is joined of parts."""
    if module != join_parts.MODULE:
        return _path_of(module)
    source = JOINED / (module.replace(".", "/") + ".py")
    source.parent.mkdir(parents=True, exist_ok=True)
    for package in source.relative_to(JOINED).parents:  # Cython finds declarations by packages
        if package.name:
            (JOINED / package / "__init__.py").touch()
    for path, text in zip(
        (source, source.with_suffix(".pxd")), join_parts.joined(ROOT), strict=True
    ):
        path.write_text(text, encoding="utf-8")
    return source


def result_of(module: str) -> Path:
    """Return the path of a compiled module, beside its source."""
    return _path_of(module).with_name(_path_of(module).stem + SUFFIX)


def extensions(modules: Iterable[str], folder: str) -> "list[Extension]":
    """Return modules as setuptools builds them, with their C sources written below `folder`.

    Raises ImportError without Cython.
    """
    from Cython.Build import cythonize
    from setuptools import Extension

    macros = [("Py_LIMITED_API", OLDEST)] if STABLE else []
    described = [
        Extension(
            module,
            [] if module == SHARED else [os.path.relpath(source_for_cython(module), ROOT)],
            py_limited_api=STABLE,
            define_macros=macros,
            extra_compile_args=["-O3", "-g0", "-w"],  # -w: nobody wrote the C
        )
        for module in (SHARED, *modules)
    ]
    return list(
        cythonize(
            described,
            build_dir=folder,
            language_level=3,
            quiet=True,
            shared_utility_qualified_name=SHARED,
        )
    )


def build(modules: list[str]) -> None:
    """Compile modules. Raises ImportError, or what the compiler's failure raises."""
    from setuptools import Distribution

    with tempfile.TemporaryDirectory() as folder:
        made = extensions((m for m in modules if m != SHARED), folder)
        command = Distribution({"ext_modules": made}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = f"{folder}/lib", f"{folder}/temp"
        command.parallel = os.cpu_count()
        command.ensure_finalized()
        command.run()
        for module in (SHARED, *(m for m in modules if m != SHARED)):
            # A new file: processes that run the old one go on with it.
            fresh = result_of(module).with_suffix(".new")
            shutil.copy(command.get_ext_fullpath(module), fresh)
            fresh.replace(result_of(module))
            print(f"build_compiled: {result_of(module).relative_to(ROOT)}")


def main() -> int:
    """Compile what is older than its source."""
    os.chdir(ROOT)
    modules = (SHARED, *COMPILED)
    # Cython is part of what each is made of: what modules share fits those of the same version.
    cython = find_spec("Cython")
    common = [Path(cython.origin)] if cython and cython.origin else []
    old = []
    for module in modules:
        own = [] if module == SHARED else [_path_of(module)]
        sources = [*(join_parts.sources(ROOT) if module == join_parts.MODULE else own), *common]
        newest = max((source.stat().st_mtime for source in sources), default=0)
        if not result_of(module).exists() or result_of(module).stat().st_mtime < newest:
            old.append(module)
    try:
        if old:
            build(old)
    except Exception as error:  # whatever a compiler does
        for module in old:
            result_of(module).unlink(missing_ok=True)
        print(f"build_compiled: not compiled: {error}; {NEEDED}", file=sys.stderr)
        return 1
    for result in map(result_of, modules):
        # Results with another suffix Python may prefer to the newest.
        for other in result.parent.glob(f"{result.name.partition('.')[0]}.*.so"):
            if other != result:
                other.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())

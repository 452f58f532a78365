#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compile the modules that are faster compiled, in place, where their source is newer.

`pip install` does the same for a wheel (setup.py); this is for the tree that is worked on: a
compiled module hides the source beside it. Without Cython or a compiler the old results are
removed, and the exit status is 1: recording works without them, reading logs does not.
"""

import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

import join_parts

ROOT = Path(__file__).resolve().parent.parent
JOINED = ROOT / "build" / "joined"
"""Where sources that are joined of parts are written, for Cython."""
NEEDED = (
    "reading logs needs the compiled modules: install a C compiler and Python's headers "
    "(Debian: gcc and python3-dev; Fedora: gcc and python3-devel)"
)
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
COMPILED = (
    "biotrail.converters.analysis.blame.share_loops",
    "biotrail.converters.analysis.distributions.sum_loops",
    "biotrail.converters.events.decoding_loops",
    "biotrail.converters.events.distinct_loops",
    "biotrail.converters.inputs.blkparse.line_loops",
    "biotrail.converters.inputs.perf.walk_loops",
    "biotrail.converters.inputs.ftrace.line_loops",
    "biotrail.converters.inputs.perfetto.wire_loops",
    "biotrail.converters.outputs.perfetto.slices.stage_loops",
    "biotrail.converters.outputs.perfetto.tracks.lane_loops",
    "biotrail.converters.outputs.perfetto.writing.packet_loops",
    "biotrail.converters.match.compiled",
    "biotrail.recorder.log.column_loops",
)
"""Modules to compile; setup.py reads them here."""


def sources_of(module: str) -> list[Path]:
    """Return the paths of what a module is made of."""
    if module == join_parts.MODULE:
        return join_parts.sources(ROOT)
    return [_path_of(module)]


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


def build(modules: list[str]) -> None:
    """Compile modules. Raises ImportError, or what the compiler's failure raises."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    with tempfile.TemporaryDirectory() as folder:
        extensions = [
            Extension(m, [str(source_for_cython(m))], extra_compile_args=["-O3"]) for m in modules
        ]
        made = cythonize(extensions, build_dir=folder, language_level=3, quiet=True)
        command = Distribution({"ext_modules": made}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = f"{folder}/lib", f"{folder}/temp"
        command.ensure_finalized()
        command.run()
        for module in modules:
            # A new file: processes that run the old one go on with it.
            fresh = result_of(module).with_suffix(".new")
            shutil.copy(command.get_ext_fullpath(module), fresh)
            fresh.replace(result_of(module))
            print(f"build_compiled: {result_of(module).relative_to(ROOT)}")


def main() -> int:
    """Compile what is older than its source."""
    old = [
        m
        for m in COMPILED
        if not result_of(m).exists()
        or result_of(m).stat().st_mtime < max(s.stat().st_mtime for s in sources_of(m))
    ]
    try:
        if old:
            build(old)
    except Exception as error:  # whatever a compiler does
        for module in old:
            result_of(module).unlink(missing_ok=True)
        print(f"build_compiled: not compiled: {error}; {NEEDED}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

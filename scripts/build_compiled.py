#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compile the modules that are faster compiled, in place, where their source is newer.

`pip install` does the same for a wheel (setup.py); this is for the tree that is worked on: a
compiled module hides the source beside it. Without Cython or a compiler the old results are
removed, and biotrail works without them.
"""

import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
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
    "biotrail.converters.settling.plain",
    "biotrail.recorder.log.column_loops",
)
"""Modules to compile; setup.py reads them here."""


def source_of(module: str) -> Path:
    """Return the path of a module's source."""
    return ROOT / (module.replace(".", "/") + ".py")


def result_of(module: str) -> Path:
    """Return the path of a compiled module, beside its source."""
    return source_of(module).with_suffix("").with_name(source_of(module).stem + SUFFIX)


def build(modules: list[str]) -> None:
    """Compile modules. Raises ImportError, or what the compiler's failure raises."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    with tempfile.TemporaryDirectory() as folder:
        extensions = [
            Extension(m, [str(source_of(m))], extra_compile_args=["-O3"]) for m in modules
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
        if not result_of(m).exists() or result_of(m).stat().st_mtime < source_of(m).stat().st_mtime
    ]
    try:
        if old:
            build(old)
    except Exception as error:  # whatever a compiler does: the source serves
        for module in old:
            result_of(module).unlink(missing_ok=True)
        print(f"build_compiled: not compiled, biotrail works without: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

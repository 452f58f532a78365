# SPDX-License-Identifier: Apache-2.0
"""Turns logs into timelines, archives and figures. Needs no root, kernel or BPF.

Its loops are compiled modules. An installation without them records, and imports nothing from here.
"""

from importlib.util import find_spec

from biotrail.recorder.schema.errors import ConversionError

if find_spec("biotrail.converters.match.compiled") is None:
    raise ConversionError(
        "this installation can record, but reads no log, as it has no compiled modules; install "
        "biotrail again where a C compiler and Python's headers are (Debian: gcc and python3-dev), "
        "or a wheel made there"
    )

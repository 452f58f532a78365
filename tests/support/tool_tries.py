# SPDX-License-Identifier: Apache-2.0
"""Tests beside other tools' recordings are done again where the tool failed, not biotrail."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from biotrail.converters.inputs.opening import open_source

_MOST_TRIES = 10
_SAID = ("failed to process type: 17", "error in size of file")
"""What `perf script` and `trace-cmd extract` say where BPF programs of others, whose symbols they
look up, came or went meanwhile."""


def done_again_where_tools_failed(test: Callable[..., None]) -> Callable[..., None]:
    """Repeat a test that fails where perf lost events, or a tool could not read or write its own.

    perf loses events where it gets no CPU. Each try has a directory of its own as `tmp_path`, in
    which perf's recordings are `*.data`; other fixtures stay as they are.
    """

    @functools.wraps(test)
    def repeated(**given: Any) -> None:
        for number in range(1, _MOST_TRIES + 1):
            directory = given["tmp_path"] / f"try-{number}"
            directory.mkdir()
            try:
                return test(**{**given, "tmp_path": directory})
            except AssertionError as error:
                failed = any(text in str(error) for text in _SAID) or _lost(directory)
                if number == _MOST_TRIES or not failed:
                    raise

    return repeated


def _lost(directory: Path) -> bool:
    """Whether perf lost events of a recording in the directory."""
    sources = [open_source(path) for path in directory.glob("*.data")]
    for source in sources:
        for _ in source.parts():
            pass
    return any(source.losses for source in sources)

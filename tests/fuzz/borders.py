# SPDX-License-Identifier: Apache-2.0
"""Where a fuzzed command line ends: before it records, starts a process, or leaves its directory.

All that reads options and this machine runs; what would change it, or wait, says that it cannot.
"""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from biotrail.recorder.probes.kernel import libbpf

_NO = OSError(errno.EPERM, "not while fuzzing")


def _refused(*_given: Any, **_named: Any) -> Any:
    raise _NO


@contextmanager
def _over() -> Iterator[threading.Event]:
    """In place of stopped_by_signals: a signal came already."""
    over = threading.Event()
    over.set()
    yield over


@contextmanager
def within(directory: str) -> Iterator[None]:
    """Commands in the block read the home directory `directory` and change nothing outside."""
    home = {"HOME": directory, "XDG_CONFIG_HOME": directory, "TMPDIR": directory}
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, home))
        for target, replaced in (
            ("biotrail.recorder.probes.kernel.libbpf._NAMES", ()),
            # Where tracefs is not mounted, root would mount it.
            ("biotrail.recorder.probes.kernel.tracefs.absence", lambda: "not while fuzzing"),
            ("subprocess.Popen._execute_child", _refused),
            ("biotrail.cli.demo.workplace", lambda: Path(directory)),
            ("biotrail.cli.archiving.shipping.stopped_by_signals", _over),
        ):
            stack.enter_context(mock.patch(target, replaced))
        for name in ("LocalCluster", "Client"):
            stack.enter_context(_dask(name))
        libbpf.load_library.cache_clear()
        stack.callback(libbpf.load_library.cache_clear)
        yield


def _dask(name: str) -> Any:
    """A patch of what begins workers, where the extra fleet is installed."""
    try:
        return mock.patch(f"biotrail.cli.cluster.{name}", _refused)
    except ImportError:
        return ExitStack()

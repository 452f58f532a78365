# SPDX-License-Identifier: Apache-2.0
"""Finds the logs that a flight recorder writes, and the I/O for which each was written."""

import os
import threading
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from biotrail.recorder.log import LogReader
from biotrail.recorder.output.folders import entries, named, open_regular
from biotrail.recorder.output.series import SUFFIX
from biotrail.recorder.schema.device_numbers import dev_text
from biotrail.recorder.schema.errors import OutputError, TraceError
from biotrail.recorder.schema.measure_structs import BOUNDS_NS

ASKED = "none"
"""Trigger of a log that a user asked for, or that was written at the end."""


class TriggerIO(NamedTuple):
    """An I/O that fired a trigger, and the log that shows it."""

    log: str
    """Name of the file, without its directory."""
    device: str
    operation: str
    sector: int
    value: int
    """`slow`: ns that it took; else what the trigger has (recorder/filters/triggers.py)."""
    realtime: int


@dataclass(frozen=True)
class Exemplars:
    """I/Os in logs of the flight recorder, the newest of each kind."""

    slow: dict[tuple[str, str, int], TriggerIO] = field(default_factory=dict)
    """(device, operation, bucket of D2C) → an I/O that was slow."""
    failed: dict[tuple[str, str], TriggerIO] = field(default_factory=dict)
    """(device, operation) → an I/O that failed."""
    logs: dict[str, int] = field(default_factory=dict)
    newest: dict[str, TriggerIO] = field(default_factory=dict)
    """Trigger → the I/O of its newest log."""


def bucket_of(ns: int) -> int:
    return bisect_left(BOUNDS_NS, ns)


class FlightLogs:
    """The logs that a flight recorder writes from now on."""

    def __init__(self, target: str) -> None:
        """target: of `record -o`, from which the files are named."""
        stem = target.removesuffix(SUFFIX)
        self._directory = os.path.dirname(stem) or "."
        self._prefix = os.path.basename(stem) + "-"
        self._lock = threading.Lock()
        self._found = Exemplars()
        self._known = set(self._listed())

    def exemplars(self) -> Exemplars:
        """Look for new logs, and return what all so far show; called from any thread."""
        with self._lock:
            listed = set(self._listed())
            new = sorted(listed - self._known)
            self._known = listed  # forgets what was deleted
            for name in new:
                self._add(name)
            found = self._found
            return Exemplars(
                dict(found.slow), dict(found.failed), dict(found.logs), dict(found.newest)
            )

    def _listed(self) -> list[str]:
        try:
            with named(self._directory) as at:
                names = entries(at)
        except (OSError, OutputError):
            return []
        return [one for one in names if one.startswith(self._prefix) and one.endswith(SUFFIX)]

    def _add(self, name: str) -> None:
        """Add a log to `_found`; one that is gone again, or is no dump, is left out."""
        try:
            with (
                named(self._directory) as at,
                open_regular(at, name, os.path.join(self._directory, name)) as stream,
                LogReader(stream) as reader,
            ):
                header = reader.header
        except (OSError, TraceError):
            return
        kept = header.get("kept")
        if not kept:
            return
        hit = kept.get("trigger") or {}
        trigger = str(hit.get("trigger", ASKED))
        self._found.logs[trigger] = self._found.logs.get(trigger, 0) + 1
        if not hit or int(hit.get("sector", -1)) < 0:  # no single I/O fired it
            return
        dev, clocks = int(hit.get("dev", 0)), header.get("clocks", {})
        since = int(clocks.get("realtime", 0)) - int(clocks.get("monotonic", 0))
        known = {one.get("dev"): one for one in header.get("devices", [])}
        device: Mapping[str, Any] = known.get(dev, {})
        ops = header.get("kernel", {}).get("op_enum", {})
        op = next((name for name, number in ops.items() if number == hit.get("op")), "unknown")
        io = TriggerIO(
            name,
            str(device.get("dm_name") or device.get("name") or dev_text(dev)),
            op.lower(),
            int(hit.get("sector", 0)),
            int(hit.get("value", 0)),
            int(hit.get("monotonic", 0)) + since,
        )
        self._found.newest[trigger] = io
        if trigger == "slow":
            self._found.slow[io.device, io.operation, bucket_of(io.value)] = io
        elif trigger == "failed":
            self._found.failed[io.device, io.operation] = io

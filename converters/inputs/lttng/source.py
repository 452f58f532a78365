# SPDX-License-Identifier: Apache-2.0
"""LTTng's kernel traces as a source of events."""

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

from biotrail.converters.inputs.foreign import without_block_events
from biotrail.converters.inputs.lttng.child.frames import DISK_NAME
from biotrail.converters.inputs.lttng.directories import find
from biotrail.converters.inputs.lttng.process import Frame, Reading
from biotrail.converters.inputs.lttng.rows import Clock, losses, tables
from biotrail.converters.inputs.tracepoints.rows import Batch, TracepointRows
from biotrail.converters.inputs.tracepoints.source import TracepointSource

_CLOCK_UNCERTAINTY_NS = 1_000
_SYSTEM = "block_"
_TOOL = "lttng"


class LttngSource(TracepointSource):
    """A kernel trace, or a session's directory with one, as a Source."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Find the traces, and read their metadata.

        Raises LogFormatError: there is none of the kernel, or several recordings; it cannot be
        read; or what reads it is not installed.
        """
        super().__init__(os.fspath(path), _TOOL)
        found = find(path)
        self.size = sum(f.stat().st_size for d in found.traces for f in d.iterdir() if f.is_file())
        self._reading = Reading(found.traces)
        self._version: tuple[int, int] | None = None
        facts = self._reading.first.facts
        self._clock = Clock.of(facts["clock"])
        self._span: tuple[int, int] = tuple(facts["span"] or (0, 0))
        self._describe(facts)
        for place in found.others:
            self.remarks.append(f"{place}: user space's events are passed over")

    def _describe(self, facts: dict[str, Any]) -> None:
        """Set the header by the metadata. Raises LogFormatError: it is no trace of the kernel."""
        environment = facts["environment"]
        enabled = [event for event in facts["events"] if event.startswith(_SYSTEM)]
        if environment.get("domain", "kernel") != "kernel" or not enabled:
            self._reading.close()
            raise without_block_events(self.name, _TOOL)
        self.set_recorded(enabled)
        self._set_version(environment)
        if release := environment.get("kernel_release"):
            self.header["kernel"] = {"release": release}
        if host := environment.get("hostname"):
            self.header["host"] = {"name": host, "os": environment.get("sysname", "?")}
        self._set_clocks(facts["began"])
        for path, why, size in facts["unreadable"]:
            self.unreadable_bytes += size
            self.problems.append(f"{path}: {size} bytes cannot be read: {why}")

    def _set_version(self, environment: dict[str, Any]) -> None:
        """Set which version of lttng-modules wrote the trace; say what is assumed without one."""
        version = [environment.get(f"tracer_{part}", "?") for part in ("major", "minor")]
        name = environment.get("tracer_name", "lttng")
        self.header["created_by"] = f"{name} {'.'.join(map(str, version))}"
        major, minor = version
        if isinstance(major, int) and isinstance(minor, int):
            self._version = major, minor
            return
        self.remarks.append(
            f"{self.name}: its metadata do not say which version of lttng-modules wrote it: flags "
            "(SYNC, META) are taken to be as those since 2.2 write them"
        )

    def _set_clocks(self, began: int) -> None:
        """Set the header's clocks, at the cycles when the trace began; add what is not known."""
        zero = self._clock.realtime_of_zero
        if self._clock.name != "monotonic":
            self.remarks.append(
                f"{self.name}: times are of the clock {self._clock.name}, not of CLOCK_MONOTONIC"
            )
        if zero is None:
            self.remarks.append(f"{self.name}: wall-clock times are not known")
            return
        time = self._clock.ns(began)
        self.header["clocks"] = {
            "monotonic": time,
            # LTTng does not record CLOCK_BOOTTIME.
            "boottime": time,
            "realtime": time + zero,
            "uncertainty": _CLOCK_UNCERTAINTY_NS,
        }

    def batches(self) -> Iterator[Batch]:
        """Yield the trace's events, as the child sends them."""
        reached = 0
        for frame in self._reading.frames():
            if frame.kind == "error":
                self.interrupted = True
                self.problems.append(
                    f"{self.name}: babeltrace2 cannot read on: {frame.facts['text']}"
                )
            elif frame.kind == "batch":
                batch = self._batch(frame, reached)
                reached = batch.complete_to
                yield batch

    def _batch(self, frame: Frame, reached: int) -> Batch:
        """Return a frame's rows and losses; adds what streams could not be read on from.

        reached: ns to which the batches before are complete.
        """
        facts = frame.facts
        rows = tables(facts, frame.payload, self._clock, self._version)
        self._name_disks([row for row in rows if row.event == DISK_NAME])
        rows = [row for row in rows if row.event != DISK_NAME]
        if facts["reached"] is not None:
            reached = max(reached, self._clock.ns(facts["reached"]))
        elif ends := [int(r.time.max()) for r in rows if len(r)]:
            reached = max(reached, *ends)
        for where, cycles, cpu, why in facts["problems"]:
            time = self._clock.ns(cycles)
            end = max(time, self._span[1] - (self._clock.realtime_of_zero or 0))
            self.damaged.append({"offset": self._offset(time), "start": time, "end": end})
            self.problems.append(f"{self.name}: stream {where} (CPU {cpu}): not read on: {why}")
        offset = self._offset(reached)
        passed_over = Counter({str(k): int(v) for k, v in facts["passed_over"].items()})
        return Batch(rows, reached, offset, losses(facts, self._clock), passed_over)

    def _name_disks(self, named: list[TracepointRows]) -> None:
        """Add to `notes` the names of disks."""
        for rows in named:
            pairs = zip(
                rows.columns["dev"].tolist(), rows.columns["diskname"].tolist(), strict=True
            )
            devices = [{"dev": dev, "name": name.decode("utf-8", "replace")} for dev, name in pairs]
            self.notes.append(("devices", {"devices": devices}))

    def _offset(self, reached: int) -> int:
        """Return how many bytes were read when all up to `reached` (ns) was, by the trace's span.

        babeltrace2 does not say. 0 where the span is not known.
        """
        begin, end = self._span
        share = (reached + (self._clock.realtime_of_zero or 0) - begin) / max(end - begin, 1)
        return int(self.size * min(max(share, 0.0), 1.0))

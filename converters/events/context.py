# SPDX-License-Identifier: Apache-2.0
"""The log's header as the converters use it: names of devices, operations, flags and statuses."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.files import FileNames
from biotrail.converters.events.tables import OP_MASK
from biotrail.recorder.schema.cgroup_names import CgroupNames
from biotrail.recorder.schema.device_numbers import dev_text
from biotrail.recorder.schema.kernel_names import FLAGS, OPS
from biotrail.recorder.schema.payloads import Header
from biotrail.recorder.schema.records import BLK_STATUS

# Titles of processes: what they call themselves, or which script an interpreter runs.


class Titles(dict[int, dict[str, str]]):
    """Titles by process id and thread's name, the newest last; they grow while a log is read."""

    def add(self, note: Mapping[str, Mapping[str, str]]) -> None:
        for pid, one in note.items():
            names = self.setdefault(int(pid), {})
            names.pop(one.get("comm", ""), None)  # so that the newest is the last
            names[one.get("comm", "")] = one.get("title", "")

    def title(self, pid: int | None, comm: str | None) -> str | None:
        """Return the newest title of a process; None: it has none, or none is known.

        comm: the name of one of its threads. Where the process had a title when it was called so
        itself, that is meant: its id may be another's later, and a title goes with a new program.
        """
        names = self.get(-1 if pid is None else pid)
        if not names:
            return None
        found = names.get(comm or "")
        return (found if found is not None else next(reversed(names.values()))) or None


def called(process: str, title: str | None) -> str:
    """Return what people call a process: its title, behind its thread's name if that is another."""
    if not title:
        return process
    return title if process in title else f"{process} ({title})"


PASSTHROUGH_OPS = frozenset({"drv_in", "drv_out", "scsi_in", "scsi_out"})


class Context:
    """Names and facts from one log's header, and what notes add to them while the log is read.

    Operation and flag numbers are the recording kernel's own; a log without them is read with
    this reader's tables. Numbers without a name are shown as such (`op 42`, `status 99`).

    `cgroups` maps cgroup ids to paths, `cgroup_names` to what they are, `titles` processes to
    what they call themselves, `files` holds the files of bios, and `clocks` the complete clock
    readings (name → ns) met so far; all of them grow while the log is read.
    `wait_stacks` has the functions of the stacks with which threads waited, by id, the innermost
    first ("": not known), `site_stacks` the frames (function, module, offset) of those of followed
    objects' hits; they grow likewise. `call_timing` is the note that says when the recorder
    ceased to time calls, as that took more than `--call-budget`; None: it did not, as far as the
    log was read. `records_bios` is whether Q is recorded; where the header does not say so, whether
    one was met so far.
    """

    def __init__(self, header: Mapping[str, Any]) -> None:
        """header: a log's (docs/log-format.md), kept; every key may be missing."""
        self.header = cast(Header, header)
        letters = header.get("events", {}).get("letters")
        # blktrace's files do not say what is recorded.
        is_blktrace = header.get("backend") == "blktrace"
        self.records_bios = letters is None or ("Q" in letters and not is_blktrace)
        self.is_light = header.get("events", {}).get("set") == "light"
        self.log_id = str(header.get("log_id", "0" * 32))
        self.host = str(header.get("host", {}).get("name", "unknown host"))
        self.machine = str(header.get("host", {}).get("machine", ""))
        self.has_files = "files" in header
        self.path_parts: frozenset[str] = frozenset(header.get("path", {}).get("parts", ()))
        """Parts of the path that the log records (`schema.records.PATH_PARTS`)."""
        self.counts_losses = header.get("counts_skips") is True
        """Whether every record missed was counted: what has none then did not happen."""
        kernel = header.get("kernel", {})
        ops = kernel.get("op_enum") or OPS
        self._op_names = {number: name.lower() for name, number in ops.items()}
        self._flag_bits: dict[str, int] = kernel.get("flag_bits") or FLAGS
        self.devices: dict[int, dict[str, Any]] = {}
        """Entries of devices by dev_t, each the newest."""
        self.add_note("devices", header)
        self.cgroups: dict[int, str] = {}
        self.cgroup_names = CgroupNames(self.cgroups)
        self.titles = Titles()
        self.files = FileNames(self.device_name)
        clocks = header.get("clocks")
        complete = clocks and {"monotonic", "boottime", "realtime"} <= clocks.keys()
        self.clocks: list[dict[str, int]] = [clocks] if clocks and complete else []
        self.end: Mapping[str, Any] | None = None
        """The log's END, where it is known before the log is read; None: not known."""
        self.wait_stacks: dict[int, tuple[str, ...]] = {}
        self.site_stacks: dict[int, list[list[Any]]] = {}
        self.call_timing: dict[str, Any] | None = None
        self.calls_timed_until: int | None = None
        """When (ns) the recorder ceased to time calls, over its budget; None: it did not."""
        self.paused: list[dict[str, Any]] = []
        self.cpus: list[dict[str, Any]] = []

    def add_note(self, name: str, payload: Mapping[str, Any]) -> None:
        """Take the facts from a note of the log; a note of another name is ignored."""
        if name == "devices":
            for device in payload.get("devices", []):
                self.devices[int(device["dev"])] = dict(device)
        elif name == "cgroups":
            paths = payload.get("cgroups", payload)
            self.cgroups.update({int(k): str(v) for k, v in paths.items()})
            self.cgroup_names.changes += 1
        elif name == "containers":
            self.cgroup_names.add(payload)
        elif name == "titles":
            self.titles.add(payload)
        elif name == "mounts":
            self.files.add_mounts(dict(payload))
        elif name == "stacks":
            stacks = payload.get("wait", {}).items()
            self.wait_stacks.update({int(k): tuple(f[0] for f in frames) for k, frames in stacks})
            self.site_stacks.update({int(k): v for k, v in payload.get("site", {}).items()})
        elif name == "call_timing":
            self.call_timing = dict(payload)
            self.calls_timed_until = int(payload["until"])
        elif name == "cpus":
            self.cpus.append(dict(payload))
        elif name == "paused":
            self.paused.append(dict(payload))

    def wall_clock(self, monotonic_ns: int) -> str | None:
        """Return a CLOCK_MONOTONIC time as UTC text, by the nearest clock reading; None without."""
        if not self.clocks:
            return None
        near = min(self.clocks, key=lambda reading: abs(reading["monotonic"] - monotonic_ns))
        realtime = near["realtime"] + monotonic_ns - near["monotonic"]
        moment = datetime.fromtimestamp(realtime // 10**9, UTC)
        return f"{moment:%Y-%m-%d %H:%M:%S}.{realtime % 10**9 // 1000:06d}Z"

    def device_name(self, dev: int) -> str:
        """Return a device's name, the device mapper's for dm; else `major:minor`."""
        entry = self.devices.get(int(dev))
        if entry is None:
            return dev_text(int(dev)) if dev else "unknown device"
        return str(entry.get("dm_name") or entry.get("name") or dev_text(int(dev)))

    def device_label(self, dev: int) -> str:
        name = self.device_name(dev)
        return name if int(dev) not in self.devices else f"{name} ({dev_text(int(dev))})"

    def partition_start(self, part: int, disk: int) -> int | None:
        """Return the first sector of a partition on a disk; None: not listed, or not known."""
        entry = self.devices.get(int(part), {})
        start = entry.get("start") if part != disk and entry.get("disk") == disk else None
        return None if start is None else int(start)

    def lower_devices(self, dev: int) -> list[int]:
        """Return the dev_t of the devices directly below: slaves of dm and md, a loop's file's."""
        entry = self.devices.get(int(dev), {})
        below = [int(d) for d in entry.get("stacked_on", [])]
        backing = entry.get("loop", {}).get("backing_dev")
        return [*below, int(backing)] if backing is not None else below

    def disk_of(self, dev: int) -> int:
        return int(self.devices.get(int(dev), {}).get("disk", dev))

    def op_number(self, name: str) -> int:
        """Return the recording kernel's number of an operation such as "flush", or -1."""
        return next((n for n, known in self._op_names.items() if known == name), -1)

    def flag_mask(self, name: str) -> int:
        """Return the mask in opf of a flag such as "PREFLUSH"; 0 if the kernel has no such flag."""
        return 1 << self._flag_bits[name] if name in self._flag_bits else 0

    def op_name(self, opf: int) -> str:
        """Return the operation of `opf`: `read`, `write`, `flush`, …; `op 42` if unnamed."""
        number = int(opf) & OP_MASK
        return self._op_names.get(number, f"op {number}")

    def op_codes(self, opf: NDArray[np.uint32]) -> tuple[NDArray[np.intp], list[str]]:
        numbers, codes = np.unique(np.asarray(opf) & OP_MASK, return_inverse=True)
        return codes, [self.op_name(int(n)) for n in numbers]

    def flag_names(self, opf: int) -> str:
        """Return the flags of `opf` as `SYNC|FUA`, those without a name as a hexadecimal number."""
        value = int(opf) & ~OP_MASK
        known = sorted((bit, name) for name, bit in self._flag_bits.items())
        names = [name for bit, name in known if value >> bit & 1]
        mask = sum(1 << bit for bit, _ in known)
        rest = value & ~mask
        return "|".join([*names, f"{rest:#x}"] if rest else names)

    def status_name(self, status: int) -> str:
        """Return the name of a blk_status_t without its prefix; old kernels have an errno."""
        if status < 0:
            return f"errno {-status}"
        return BLK_STATUS.get(int(status), f"status {status}")

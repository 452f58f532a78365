# SPDX-License-Identifier: Apache-2.0
"""What a log's header says, as the converters ask for it: names instead of numbers."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.files import FileNames
from biotrail.recorder.schema.kernel_names import FLAGS, OPS
from biotrail.recorder.schema.records import BLK_STATUS

OP_BITS = 8
OP_MASK = (1 << OP_BITS) - 1

PASSTHROUGH_OPS = frozenset({"drv_in", "drv_out", "scsi_in", "scsi_out"})


def dev_numbers(dev: int) -> str:
    """`major:minor` of a kernel dev_t."""
    return f"{dev >> 20}:{dev & 0xFFFFF}"


def _header_map(source: Mapping[str, Any], key: str, default: dict[str, int]) -> dict[str, int]:
    found = source.get(key)
    return {str(k): int(v) for k, v in found.items()} if found else dict(default)


def _whole(clocks: Mapping[str, int]) -> bool:
    """Whether all is there that a reading of the clocks is used for."""
    return {"monotonic", "boottime", "realtime"} <= clocks.keys()


class Context:
    """The facts of one log's header. Unknown numbers get names that say so."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        self.header = header
        kernel = header.get("kernel", {})
        ops = _header_map(kernel, "op_enum", OPS)
        self._op_names = {number: name.lower() for name, number in ops.items()}
        self._flag_bits = _header_map(kernel, "flag_bits", FLAGS)
        self._devices: dict[int, dict[str, Any]] = {}
        self.add_devices(header.get("devices", []))
        self.cgroups: dict[int, str] = {}
        self.files = FileNames(self.device_name)
        clocks = header.get("clocks")
        self.clocks: list[dict[str, int]] = [clocks] if clocks and _whole(clocks) else []

    @property
    def has_files(self) -> bool:
        """Whether the log tells whose pages bios carry (`record --files`)."""
        return "files" in self.header

    @property
    def tells_losses(self) -> bool:
        """Whether every record that is missing is counted: what is not there was not."""
        return self.header.get("counts_skips") is True

    def add_devices(self, devices: list[dict[str, Any]]) -> None:
        """Devices that appeared while recording (the log's `devices` notes)."""
        for device in devices:
            self._devices[int(device["dev"])] = dict(device)

    @property
    def log_id(self) -> str:
        """32 hex digits, unique to the log."""
        return str(self.header.get("log_id", "0" * 32))

    @property
    def host(self) -> str:
        """The recording host's name."""
        return str(self.header.get("host", {}).get("name", "unknown host"))

    def wall_clock(self, monotonic_ns: int) -> str | None:
        """A time as ISO 8601 in UTC, by the nearest reading of the log's clocks; None without."""
        if not self.clocks:
            return None
        near = min(self.clocks, key=lambda reading: abs(reading["monotonic"] - monotonic_ns))
        realtime = near["realtime"] + monotonic_ns - near["monotonic"]
        moment = datetime.fromtimestamp(realtime // 10**9, UTC)
        return f"{moment:%Y-%m-%d %H:%M:%S}.{realtime % 10**9 // 1000:06d}Z"

    @property
    def devices(self) -> dict[int, dict[str, Any]]:
        """Device entries of the header by kernel dev_t."""
        return self._devices

    def device_name(self, dev: int) -> str:
        """`nvme0n1`; the mapper's name for dm; `major:minor` when the header has none."""
        entry = self._devices.get(int(dev))
        if entry is None:
            return dev_numbers(int(dev)) if dev else "unknown device"
        return str(entry.get("dm_name") or entry.get("name") or dev_numbers(int(dev)))

    def device_label(self, dev: int) -> str:
        """`nvme0n1 (259:0)`."""
        name = self.device_name(dev)
        return name if int(dev) not in self._devices else f"{name} ({dev_numbers(int(dev))})"

    def is_partition_of(self, part: int, disk: int) -> bool:
        """Whether the header lists `part` as a partition of `disk`."""
        entry = self._devices.get(int(part))
        return entry is not None and part != disk and entry.get("disk") == disk

    def partition_start(self, part: int, disk: int) -> int | None:
        """First sector of a partition on its disk; None where it is none, or not known."""
        if not self.is_partition_of(part, disk):
            return None
        start = self._devices[int(part)].get("start")
        return None if start is None else int(start)

    def lower_devices(self, dev: int) -> list[int]:
        """Devices right below: slaves of dm and md, a loop's backing device."""
        entry = self._devices.get(int(dev), {})
        below = [int(d) for d in entry.get("stacked_on", [])]
        backing = entry.get("loop", {}).get("backing_dev")
        return [*below, int(backing)] if backing is not None else below

    def disk_of(self, dev: int) -> int:
        """The whole disk of a partition; `dev` itself otherwise."""
        return int(self._devices.get(int(dev), {}).get("disk", dev))

    def op_number(self, name: str) -> int:
        """The recording kernel's number of an operation such as "flush"; -1: it has none."""
        return next((n for n, known in self._op_names.items() if known == name), -1)

    def flag_mask(self, name: str) -> int:
        """The bit of a flag such as "PREFLUSH" in opf; 0 where the kernel has none."""
        return 1 << self._flag_bits[name] if name in self._flag_bits else 0

    def op_name(self, opf: int) -> str:
        """`read`, `write`, `flush`, `discard`, …; `op 42` for a number without a name."""
        number = int(opf) & OP_MASK
        return self._op_names.get(number, f"op {number}")

    def op_codes(self, opf: NDArray[np.uint32]) -> tuple[NDArray[np.intp], list[str]]:
        """Operation of each opf as (codes into names, names)."""
        numbers, codes = np.unique(np.asarray(opf) & OP_MASK, return_inverse=True)
        return codes, [self.op_name(int(n)) for n in numbers]

    def flag_names(self, opf: int) -> str:
        """`SYNC|FUA`, in bit order; empty when no flag is set."""
        value = int(opf) & ~OP_MASK
        known = sorted((bit, name) for name, bit in self._flag_bits.items())
        names = [name for bit, name in known if value >> bit & 1]
        mask = sum(1 << bit for bit, _ in known)
        rest = value & ~mask
        return "|".join([*names, f"{rest:#x}"] if rest else names)

    def status_name(self, status: int) -> str:
        """`OK`, `IOERR`, …; `errno 5` on kernels that gave an errno."""
        if status < 0:
            return f"errno {-status}"
        return BLK_STATUS.get(int(status), f"status {status}")

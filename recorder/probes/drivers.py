# SPDX-License-Identifier: Apache-2.0
"""The part `driver` of the path (bpf/drivers.h): which drivers' steps this kernel can tell.

Drivers are modules in most kernels, whose type information is not in the kernel's own BTF and on
5.10 nowhere. So their tracepoints are known by the kernel's symbols, and their programs are raw.
"""

import os
from dataclasses import dataclass

from biotrail.recorder.symbols.kallsyms import address_in, has_symbol, read_symbols

PART = "driver"

_LOOP_COMPLETE = "lo_rw_aio_complete"
SLOTS = 1 << 15
"""Entries of bt_driver_steps, if the part is recorded."""


@dataclass(frozen=True)
class Driver:
    """A driver's programs by tracepoint, in the order in which a request passes them.

    Each program has a variant, ending in _p, that disables preemption. remedy: where a tracepoint
    is missing, what may be the cause.
    """

    name: str
    programs: dict[str, str]
    remedy: str
    present: str | None = None
    """Directory of sysfs that has an entry while a device has the driver; None: always there."""

    def has_devices(self) -> bool:
        if self.present is None:
            return True
        try:
            return bool(os.listdir(self.present))
        except OSError:  # the module is not loaded
            return False


DRIVERS = (
    Driver(
        "nvme",
        {
            "nvme_setup_cmd": "bt_nvme_setup",
            "nvme_sq": "bt_nvme_sq",
            "nvme_complete_rq": "bt_nvme_done",
        },
        "is the module nvme_core loaded?",
        "/sys/class/nvme",
    ),
    Driver(
        "scsi",
        {
            "scsi_dispatch_cmd_start": "bt_scsi_start",
            "scsi_dispatch_cmd_done": "bt_scsi_done",
            "scsi_dispatch_cmd_error": "bt_scsi_error",
            "scsi_dispatch_cmd_timeout": "bt_scsi_late",
        },
        "is the module scsi_mod loaded?",
        "/sys/class/scsi_device",
    ),
    Driver(
        "loop",
        {"iomap_dio_rw_begin": "bt_loop_begin", "iomap_dio_complete": "bt_loop_done"},
        "6.1 has none, 6.12 has them",
    ),
)
"""In the order of the `driver` field's numbers, from 1 on."""
BY_NAME = {driver.name: driver for driver in DRIVERS}


@dataclass(frozen=True)
class DriverChoice:
    """Which drivers' steps are recorded.

    programs: in the order of attaching. lacking: driver → why its steps are not recorded.
    """

    programs: tuple[str, ...] = ()
    lacking: tuple[tuple[str, str], ...] = ()

    @property
    def recorded(self) -> list[str]:
        """Names of the drivers that are not `lacking`, in the order of DRIVERS."""
        without = dict(self.lacking)
        return [driver.name for driver in DRIVERS if driver.name not in without]

    @property
    def reason(self) -> str:
        """Why the part is not recorded at all; "" if some driver's steps are."""
        if self.recorded:
            return ""
        return "; ".join(f"{name}: {why}" for name, why in self.lacking)


NO_DRIVERS = DriverChoice()


def choose_drivers(preemptible: bool, symbols: bytes | None = None) -> DriverChoice:
    """Return which drivers' steps this kernel can record, and the programs for them.

    symbols: text as in /proc/kallsyms; None: that of this kernel. A driver needs all of its
    tracepoints, and loop the address of the function that ends its file I/O too. A module that is
    loaded later is not known.
    """
    if symbols is None:
        symbols = read_symbols()
    programs: list[str] = []
    lacking: list[tuple[str, str]] = []
    for driver in DRIVERS:
        # The kernel or a loaded module has the function that calls the tracepoint's probes.
        missing = [
            name for name in driver.programs if not has_symbol(f"__traceiter_{name}", symbols)
        ]
        if missing:
            why = f"this kernel has no tracepoint {missing[0]} ({driver.remedy})"
            lacking.append((driver.name, why))
            continue
        if driver.name == "loop" and not address_in(_LOOP_COMPLETE, symbols):
            why = f"the address of {_LOOP_COMPLETE} is hidden, or the module loop is not loaded"
            lacking.append((driver.name, why))
            continue
        programs += [name + ("_p" if preemptible else "") for name in driver.programs.values()]
    return DriverChoice(tuple(programs), tuple(lacking))

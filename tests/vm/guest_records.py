# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: each set of events; a log in parts; what led to a trigger."""

from tests.vm.guest_case import Case, disk, fio

EVENT_SETS = ("light", "minimal", "lifecycle", "all")
TRIGGER_DEPTH = 8
MIXED = {"rw": "randrw", "size": "2m", "iodepth": 8}


def event_sets(case: Case) -> None:
    """The same load of a disk, with each set of events."""
    name = disk("virtio")
    for events in EVENT_SETS:
        account = case.directory / f"{events}.json"
        load = fio(filename=f"/dev/{name}", output=account, **MIXED)
        case.record([name], load, events, ["--events", events])
    case.told["disk"] = name


def rotated(case: Case) -> None:
    """A load in files of 64 KiB, of which each takes one second of it or less.

    A load as fast as the disk is over, in a slow machine, before the recorder looks again: all of
    it is one part of the log then, however large.
    """
    name = disk("virtio")
    load = fio(
        filename=f"/dev/{name}",
        output=case.directory / "log.json",
        **MIXED | {"size": "16m", "rate_iops": 500},
    )
    case.record([name], load, more=["--rotate", "64K", "--events", "all"])
    case.told["disk"] = name


def triggered(case: Case) -> None:
    """A flight recorder that writes at a depth that the load reaches."""
    name = disk("nvme0")
    load = fio(filename=f"/dev/{name}", output=case.directory / "log.json", **MIXED)
    more = ["--keep", "60s", "--trigger", f"depth={TRIGGER_DEPTH}", "--after", "100ms"]
    case.record([name], load, more=more)
    case.told["disk"] = name


CASES = (event_sets, rotated, triggered)

# SPDX-License-Identifier: Apache-2.0
"""Builds a log's header: host, kernel, clocks, devices, options, versions."""

import os
import platform
from collections.abc import Sequence
from typing import cast

import numpy as np
import zstandard

from biotrail.recorder.host import host
from biotrail.recorder.probes.maps.path_maps import NO_PATH, PathChoice
from biotrail.recorder.probes.maps.stack_maps import Stacks
from biotrail.recorder.schema import records
from biotrail.recorder.schema.payloads import (
    BackendFacts,
    Clock,
    Device,
    EventFacts,
    FilterFacts,
    Header,
    HostFacts,
    KernelEnums,
    KernelFacts,
    RightFacts,
    RingFacts,
)


def versions(created_by: str) -> dict[str, str]:
    """Return the versions of biotrail (`created_by`), python, numpy and zstandard by name."""
    return {
        "biotrail": created_by,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "zstandard": zstandard.__version__,  # importlib.metadata takes a tenth of a second to ask
    }


def header(
    *,
    created_by: str,
    clock: Clock,
    command: Sequence[str],
    kernel_enums: KernelEnums,
    filters: FilterFacts,
    events: EventFacts,
    rings: RingFacts,
    rights: RightFacts,
    backend: BackendFacts,
    files: Header,
    stacks: Stacks = Stacks.NONE,
    path: PathChoice = NO_PATH,
    listed: list[Device],
) -> Header:
    """Return the header of a new log; the log writer adds the format's version.

    The host and its kernel are looked up now. listed: the devices (devices.snapshot), looked up
    before the programs were attached: some sysfs attributes ask the device (a virtio disk's serial
    number), which would be in the log. clock: read before the programs were
    attached, so that no event is older. kernel_enums: `op_enum` and `flag_bits` alone. command:
    biotrail's command line. stacks: which call stacks are recorded; "stacks" is no key if none.
    backend, files: keys of the header itself (Probes.backend_facts, FileWatch.facts). The other
    arguments are the header's entries of the same name, but kernel_enums is put into "kernel" and
    clock into "clocks". "log_id" is random.
    """
    machine = host.facts()
    kernel: KernelFacts = machine.pop("kernel", {})
    made: Header = {
        "log_id": os.urandom(16).hex(),
        "created_by": created_by,
        "host": cast(HostFacts, machine),
        "kernel": {**kernel, **kernel_enums},
        "clocks": clock,
        "devices": listed,
        "command": list(command),
        "filters": filters,
        "events": events,
    }
    if stacks:
        made["stacks"] = {"user": stacks >= Stacks.USER}
    made.update(files)
    if (parts := path.facts()) is not None:
        made["path"] = parts
    made.update(cast(Header, backend))
    made["versions"] = versions(created_by)
    made["rings"], made["rights"] = rings, rights
    made["schema"] = records.schema(path.parts, "sites" in made, events["set"] == "light")
    return made

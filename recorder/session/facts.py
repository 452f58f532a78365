# SPDX-License-Identifier: Apache-2.0
"""Builds a log's header: host, kernel, clocks, devices, options, versions."""

import platform
import secrets
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from biotrail.recorder.host import devices, host
from biotrail.recorder.probes.stack_maps import Stacks
from biotrail.recorder.schema import records


def versions(created_by: str) -> dict[str, str]:
    """Return the versions of biotrail (`created_by`), python, numpy and zstandard by name."""
    found = {"biotrail": created_by, "python": platform.python_version()}
    for name in ("numpy", "zstandard"):
        found[name] = metadata.version(name)
    return found


def header(
    *,
    created_by: str,
    clock: dict[str, int],
    command: Sequence[str],
    kernel_enums: dict[str, Any],
    filters: dict[str, Any],
    events: dict[str, Any],
    rings: dict[str, Any],
    rights: dict[str, Any],
    backend: dict[str, Any],
    files: dict[str, Any],
    stacks: Stacks = Stacks.NONE,
) -> dict[str, Any]:
    """Return the header of a new log; the log writer adds the format's version.

    clock: read before the programs were attached, so that no event is older. kernel_enums:
    `op_enum` and `flag_bits`. backend: as Probes.backend_facts. files: FileWatch.facts.
    The other arguments are the header's entries of the same name.
    """
    machine = host.facts()
    kernel = machine.pop("kernel", {})
    return {
        "log_id": secrets.token_hex(16),
        "created_by": created_by,
        "host": machine,
        "kernel": {**kernel, **kernel_enums},
        "clocks": clock,
        "devices": devices.snapshot(),
        "command": list(command),
        "filters": filters,
        "events": events,
        **({"stacks": {"user": stacks >= Stacks.USER}} if stacks else {}),
        **files,
        **backend,
        "versions": versions(created_by),
        "rings": rings,
        "rights": rights,
        "schema": records.schema(),
    }

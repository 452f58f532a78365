# SPDX-License-Identifier: Apache-2.0
"""A recording's filters, what they left out, and triggers that made no dump, in words.

Readers of logs use this too: it imports nothing that only recording needs.
"""

from collections.abc import Mapping
from typing import Any

from biotrail.recorder.filters.left_out import LeftOut
from biotrail.text import units

_NAMES = {
    "device": "of other devices",
    "op": "of other operations",
    "flags": "without the flags",
    "min_size": "too small",
    "sectors": "of other sectors",
    "pid": "of other processes",
    "tid": "of other threads",
    "comm": "of other task names",
    "cgroup": "of other cgroups",
    "file": "of other files",
    "no_file": "whose file is not known",
    "no_dir": "whose directory is not known",
    "no_bio": "of requests whose bios are not known",
    "own": "of the recorder itself",
}


def left_out_text(found: LeftOut) -> str:
    """Return `filters left out 3,000 events: bios 900 of other processes, 100 too small`."""
    parts = [f"{units.count(n)} {_NAMES.get(name, name)}" for name, n in found.bios.items()]
    if not parts:
        return ""
    return f"filters left out {units.count(sum(found.events.values()))} events: bios " + ", ".join(
        parts
    )


def filters_text(header: Mapping[str, Any]) -> str:
    """Return a log header's `filters` as options, `--pid 12,34 --op write`, but without devices."""
    names = {
        "pids": "--pid",
        "tids": "--tid",
        "comms": "--comm",
        "cgroups": "--cgroup",
        "units": "--unit",
        "containers": "--container",
        "pods": "--pod",
        "ops": "--op",
        "flags": "--flags",
    }
    parts = [
        f"{option} {','.join(map(str, header[name]))}"
        for name, option in names.items()
        if header.get(name)
    ]
    for name, option in (("files", "--file"), ("dirs", "--dir")):
        parts += [f"{option} {path}" for path in header.get(name, [])]
    plain = {"children": "--children", "below": "--below", "own_io": "--own-io"}
    parts += [option for name, option in plain.items() if header.get(name)]
    if header.get("min_bytes"):
        parts.append(f"--min-size {header['min_bytes']}")
    parts += [f"--sectors {first}-{last}" for first, last in header.get("sectors", [])]
    return " ".join(parts)


def read_left_out(end: Mapping[str, Any] | None) -> LeftOut:
    counts = (end or {}).get("left_out", {})
    return LeftOut(
        {str(name): int(n) for name, n in counts.get("bios", {}).items()},
        {int(kind): int(n) for kind, n in counts.get("events", {}).items()},
        int(counts.get("unfollowed", 0)),
    )


def let_pass_text(number: int) -> str:
    # At least: the programs report only the first trigger of each CPU between two polls.
    return f"at least {units.plural(number, 'trigger')} so soon after another (--every)"

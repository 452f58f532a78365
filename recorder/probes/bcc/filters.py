# SPDX-License-Identifier: Apache-2.0
"""Filters of the bcc backend: by what the events of a bio and of its request have in common.

A tracepoint does not report which bio a request is for, so a decision at Q cannot be remembered
for the request. That leaves device, operation and sectors, which every event of an I/O carries.
Other filters would record parts of lifecycles, and are refused.
"""

import ctypes
from collections.abc import Iterable

from biotrail.recorder.filters.filters import Filters, masks
from biotrail.recorder.filters.left_out import REASONS
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.kernel_names import OPS, RWBS_OPS

_ADMITTED = 15
"""BT_ADMITTED, bt_judge's answer for wanted events: no reason's number, below BT_REASONS."""

# C conditions on a struct bt_event: an empty write, and a request without a position.
_EMPTY = "(!event->bytes && (!event->sector || event->sector == BT_NO_SECTOR))"
_NOWHERE = "(event->sector == BT_NO_SECTOR || (!event->sector && !event->nr_sector))"
_OTHERS = {
    # An empty write with PREFLUSH is a flush, as with core; its completion has no letter for it.
    "WRITE": f"(a == 'W' && b != 'Z' && !{_EMPTY})",
    "FLUSH": f"(a == 'F' || (a == 'W' && b != 'Z' && {_EMPTY}))",
    "DISCARD": "(a == 'D' && b != 'E')",
    "WRITE_ZEROES": f"((a == 'W' && b == 'Z') || (a == 'N' && !{_NOWHERE}))",
    "ZONE_RESET": "(a == 'Z' && b == 'R' && c != 'A')",
    "DRV_IN": f"(a == 'N' && {_NOWHERE})",
}
"""C conditions by operation, where its letters in a, b and c do not suffice."""


def check(filters: Filters) -> None:
    """Raise ProbeError, listing the options, for filters that this backend cannot apply."""
    given = {
        "--pid": filters.pids,
        "--tid": filters.tids,
        "--comm": filters.comms,
        "--cgroup": filters.cgroups,
        "--unit": filters.units,
        "--container": filters.containers,
        "--pod": filters.pods,
        "--file": filters.files,
        "--dir": filters.dirs,
        "--flags": filters.flags,
        "--min-size": filters.min_bytes,
    }
    unknown = [option for option, value in given.items() if value]
    wanted_ops = masks(filters.ops, OPS, "--op")
    unknown += ["--op drv_out"] if OPS["DRV_OUT"] in wanted_ops else []
    if unknown:
        raise ProbeError(
            f"the bcc backend cannot filter by {', '.join(unknown)}: tracepoints do not say which "
            "bio a request is for. It can by device, --op and --sectors; --backend core by all"
        )


def source(devices: list[ctypes.Structure], filters: Filters) -> str:
    """Return the C text of the filters: three macros and two functions for bpf/bcc.h.

    `u64 bt_judge(struct bt_event *)` returns BT_ADMITTED or why the event is left out, as an index
    of REASONS. `int bt_wanted_source(u32 dev)` returns whether a remap from `dev` is wanted: from a
    chosen partition, or a disk chosen whole.
    """
    body = ["u64 w = event->rwbs;", "u8 a, b, c;", *_letters()]
    for reason, condition in (
        ("device", _any(_device(d) for d in devices)),
        ("op", _any(_op(n) for n in masks(filters.ops, OPS, "--op"))),
        ("sectors", _any(_range(*pair) for pair in filters.sectors)),
    ):
        if condition:
            body.append(f"if (!({condition})) return {REASONS.index(reason)};")
    origin = _any(f"dev == {d.part or d.disk}U" for d in devices) or "1"
    filtering = int(bool(devices or filters.ops or filters.sectors))
    return "\n".join(
        (
            f"#define BT_FILTERING {filtering}",
            f"#define BT_ADMITTED {_ADMITTED}",
            f"#define BT_BY_DEVICE {REASONS.index('device')}",
            inline("u64 bt_judge(struct bt_event *event)", [*body, "return BT_ADMITTED;"]),
            inline("int bt_wanted_source(u32 dev)", [f"return {origin};"]),
        )
    )


def _letters() -> list[str]:
    """Return C lines that set a, b and c to the first letters of rwbs but a leading PREFLUSH."""
    ops = " || ".join(f"b == '{letter}'" for letter in "RWDFZN")
    again = "a = w; b = w >> 8; c = w >> 16;"
    return [again, f"if (a == 'F' && ({ops})) {{ w >>= 8; {again} }}"]


def _any(conditions: Iterable[str]) -> str:
    return " || ".join(conditions)


def _device(device: ctypes.Structure) -> str:
    """Return a C condition for an event of a disk, or of a partition by its sectors on the disk.

    An event without data matches any partition of its disk.
    """
    same_disk = f"event->dev == {device.disk}U"
    if not device.part:
        return f"({same_disk})"
    within = f"event->sector >= {device.start}ULL && event->sector < {device.end}ULL"
    return f"({same_disk} && (!event->bytes || ({within})))"


def _op(number: int) -> str:
    """Return a C condition over a, b and c, and `event`; not for DRV_OUT, which has no letters."""
    name = next(op for op, value in OPS.items() if value == number)
    if name in _OTHERS:
        return _OTHERS[name]
    letters = next(text for text, op in RWBS_OPS.items() if op == name)
    return "(" + " && ".join(f"{n} == '{x}'" for n, x in zip("abc", letters, strict=False)) + ")"


def _range(first: int, last: int) -> str:
    """Return a C condition for an event that overlaps sectors `first` to `last`, both included.

    An event without sectors matches if its position, other than 0, lies in the range.
    """
    end = "event->sector + event->nr_sector"
    data = f"event->sector <= {last}ULL && {end} > {first}ULL"
    return (
        f"(event->sector && event->sector >= {first}ULL && event->sector <= {last}ULL) || ({data})"
    )


def inline(head: str, body: Iterable[str]) -> str:
    lines = "\n".join(f"\t{line}" for line in body)
    return f"static inline __attribute__((always_inline)) {head}\n{{\n{lines}\n}}\n"

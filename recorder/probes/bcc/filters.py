# SPDX-License-Identifier: Apache-2.0
"""Filters for the bcc backend: what a bio's events and its request's both tell.

A tracepoint does not say which bio a request is for, so nothing can be decided when a bio is
queued and remembered. What is left are device, operation and sectors, which every event of an
I/O carries; anything else would keep halves of lifecycles, and is refused.
"""

from collections.abc import Iterable

from biotrail.recorder.filters.filters import REASONS, Filters, masks
from biotrail.recorder.probes.admission import DeviceFilter
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.kernel_names import OPS, RWBS_OPS

_ADMITTED = 15
"""No reason's number; it fits the mask of BT_REASONS (bpf/bcc_ring.h)."""

_EMPTY = "(!said->bytes && (!said->sector || said->sector == BT_NO_SECTOR))"
_NOWHERE = "(said->sector == BT_NO_SECTOR || (!said->sector && !said->nr_sector))"
_OTHERS = {
    # An empty write that flushes is a flush, as with core; its end does not say that it flushes.
    "WRITE": f"(a == 'W' && b != 'Z' && !{_EMPTY})",
    "FLUSH": f"(a == 'F' || (a == 'W' && b != 'Z' && {_EMPTY}))",
    "DISCARD": "(a == 'D' && b != 'E')",
    "WRITE_ZEROES": f"((a == 'W' && b == 'Z') || (a == 'N' && !{_NOWHERE}))",
    "ZONE_RESET": "(a == 'Z' && b == 'R' && c != 'A')",
    "DRV_IN": f"(a == 'N' && {_NOWHERE})",
}
"""Conditions that are more than the operation's letters."""


def check(filters: Filters) -> None:
    """Raises ProbeError for what this backend cannot decide."""
    given = {
        "--pid": filters.pids,
        "--tid": filters.tids,
        "--comm": filters.comms,
        "--cgroup": filters.cgroups,
        "--flags": filters.flags,
        "--min-size": filters.min_bytes,
    }
    unknown = [option for option, value in given.items() if value]
    told = masks(filters.ops, OPS, "--op")
    unknown += ["--op drv_out"] if OPS["DRV_OUT"] in told else []
    if unknown:
        raise ProbeError(
            f"the bcc backend cannot filter by {', '.join(unknown)}: tracepoints do not tell whose "
            "request it is. It can by device, --op and --sectors; --backend core by all"
        )


def source(devices: list[DeviceFilter], filters: Filters) -> str:
    """C text: bt_judge, which gives a reason's number or BT_ADMITTED, and bt_wanted_source."""
    body = ["u64 w = said->rwbs;", "u8 a, b, c;", *_letters()]
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
            inline("u64 bt_judge(struct bt_said *said)", [*body, "return BT_ADMITTED;"]),
            inline("int bt_wanted_source(u32 dev)", [f"return {origin};"]),
        )
    )


def _letters() -> list[str]:
    """The operation's letters in a, b and c; an F that only flushes first is passed over."""
    ops = " || ".join(f"b == '{letter}'" for letter in "RWDFZN")
    again = "a = w; b = w >> 8; c = w >> 16;"
    return [again, f"if (a == 'F' && ({ops})) {{ w >>= 8; {again} }}"]


def _any(conditions: Iterable[str]) -> str:
    return " || ".join(conditions)


def _device(device: DeviceFilter) -> str:
    """Tracepoints name disks: a partition is known by its sectors, what has none by the disk."""
    found = f"said->dev == {device.disk}U"
    if not device.part:
        return f"({found})"
    within = f"said->sector >= {device.start}ULL && said->sector < {device.end}ULL"
    return f"({found} && (!said->bytes || ({within})))"


def _op(number: int) -> str:
    name = next(known for known, value in OPS.items() if value == number)
    if name in _OTHERS:
        return _OTHERS[name]
    letters = next(found for found, known in RWBS_OPS.items() if known == name)
    return "(" + " && ".join(f"{n} == '{x}'" for n, x in zip("abc", letters, strict=False)) + ")"


def _range(first: int, last: int) -> str:
    """Events that reach into the range. Without data there are no sectors, but for a late end."""
    end = "said->sector + said->nr_sector"
    data = f"said->sector <= {last}ULL && {end} > {first}ULL"
    return f"(said->sector && said->sector >= {first}ULL && said->sector <= {last}ULL) || ({data})"


def inline(head: str, body: Iterable[str]) -> str:
    """A C function of one statement a line."""
    lines = "\n".join(f"\t{line}" for line in body)
    return f"static inline __attribute__((always_inline)) {head}\n{{\n{lines}\n}}\n"

# SPDX-License-Identifier: Apache-2.0
"""Makes the bcc backend's C text for this kernel's tracepoint formats.

Field offsets and sizes are taken from the formats alone, so nothing depends on the kernel's
version or on headers. A field that a format does not have is 0 in the record, or the record's
value for "not known"; `absent` lists these fields.

A tracepoint does not report which bio a request is for, so a decision at Q cannot be remembered for
the request. That leaves filters by what every event of an I/O carries: device, operation and
sectors. Others would record parts of lifecycles, and are refused.
"""

import ctypes
import os
from collections.abc import Iterable, Mapping
from importlib import resources

from biotrail.recorder.filters.filters import Filters, masks
from biotrail.recorder.filters.left_out import REASONS
from biotrail.recorder.host.own_io import pid_namespace
from biotrail.recorder.probes.rings.ring import RingSizes
from biotrail.recorder.schema.block_events import NEEDED
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.formats import Field, Format
from biotrail.recorder.schema.kernel_names import ERRNO, FLAGS, IOERR, OPS, RWBS_FLAGS, RWBS_OPS
from biotrail.recorder.schema.records import BY_LETTER

RINGS = "bt_rings"
"""Name of the map of rings in the C text."""
# The call in bpf/bcc.h that writes an event's record, by letter.
_CALLS = {
    "Q": "on_queue(&event)",
    "G": "on_getrq(&event)",
    "M": "on_merge(&event, BT_M)",
    "F": "on_merge(&event, BT_F)",
    "X": "on_split(&event)",
    "A": "on_remap(&event)",
    "c": "on_bio_complete(&event)",
    "s": "on_request(&event, BT_START)",
    "I": "on_request(&event, BT_I)",
    "R": "on_request(&event, BT_R)",
    "m": "on_request(&event, BT_RQ_MERGE)",
    "D": "on_issue(&event)",
    "C": "on_complete(&event, BT_C)",
    "E": "on_complete(&event, BT_E)",
    "d": "on_done(&event)",
    "P": "on_plug(&event)",
    "U": "on_unplug(&event)",
    "a": "on_rq_remap(&event)",
}
_COPIED = {
    "sector": 8,
    "old_sector": 8,
    "new_sector": 8,
    "dev": 4,
    "old_dev": 4,
    "nr_sector": 4,
    "bytes": 4,
    "nr_rq": 4,
    "error": 4,
    "ioprio": 2,
}
"""Members of struct bt_event that are copied from the field of the same name: size in bytes."""

_POINTERS = ("bio", "rq", "parent", "page")
_NEVER = (*_POINTERS, "tag", "sched_tag", "hctx", "nr_bios", "hint", "cgroup", "explicit")
"""Record fields that no tracepoint reports."""
_RWBS_BYTES = 8
"""Letters of rwbs that are read; no combination that occurs is longer."""

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


def absent(letters: Iterable[str], formats: Mapping[str, Format]) -> dict[str, list[str]]:
    """Return names of record fields that this kernel's tracepoints lack, by event letter."""
    by_letter: dict[str, list[str]] = {}
    for letter in letters:
        record = BY_LETTER[letter]
        reported = formats[record.tracepoint].fields
        names = [field.name for field in record.fields]
        missing = [name for name in names if name in _NEVER]
        missing += (
            ["ioprio"] if "ioprio" in names and (letter == "Q" or "ioprio" not in reported) else []
        )
        missing += ["dev"] if letter in "PU" else ["part"] if letter == "Q" else []
        missing += ["status"] if "status" in names and "error" not in reported else []
        if missing:
            by_letter[letter] = missing
    return by_letter


def lacks(letter: str, form: Format) -> list[str]:
    return [name for name in NEEDED[letter] if name not in form.fields]


def program_name(tracepoint: str) -> str:
    return f"bt_{tracepoint.removeprefix('block_')}"


def source(
    forms: Mapping[str, Format],
    devices: list[ctypes.Structure],
    filters: Filters,
    sizes: RingSizes,
    cpus: int,
) -> str:
    """Return the whole C text for bcc. forms: formats of events by letter. Raises ProbeError."""
    numbers = {f"BT_OP_{RWBS_OPS[letters]}": OPS[RWBS_OPS[letters]] for letters in RWBS_OPS}
    numbers["BT_OP_DRV_IN"] = OPS["DRV_IN"]
    numbers |= {f"BT_{name}": 1 << FLAGS[name] for name in [*RWBS_FLAGS.values(), "PREFLUSH"]}
    numbers |= {
        "BT_CPUS": cpus,
        "BT_RING_BYTES": sizes.ring_bytes,
        "BT_AREA_BYTES": sizes.area_bytes,
        # In a pid namespace getpid() is not the number that the programs see.
        "BT_RECORDER": os.getpid() if pid_namespace() is None else 0,
    }
    defined = "\n".join(f"#define {name} {number}" for name, number in numbers.items())
    body = ["if (!error) return 0;", f"if (error > 0) return {IOERR};", "switch (error) {"]
    body += [f"case {-errno}: return {status};" for status, errno in ERRNO.items()] + ["}"]
    texts = resources.files("biotrail.bpf")
    parts = [
        f"#include <uapi/linux/bpf.h>\n{defined}\n",
        (texts / "records.h").read_text(),
        (texts / "bcc_ring.h").read_text(),
        # errno of a tracepoint to blk_status_t, if it has one.
        _inline("s32 bt_status(s32 error)", [*body, "return error;"]),
        filter_text(devices, filters),
        (texts / "bcc.h").read_text(),
        *(_program(letter, form) for letter, form in forms.items()),
    ]
    return "\n".join(parts)


def _program(letter: str, form: Format) -> str:
    lines = ["struct bt_event event = {};"]
    for name, size in _COPIED.items():
        if name in form.fields:
            lines.append(f"event.{name} = {_load(form, form.fields[name], size)};")
    if "bytes" not in form.fields:
        lines.append("event.bytes = event.nr_sector << 9;")
    if "rwbs" in form.fields:
        lines.append(f"event.rwbs = {_letters(form, form.fields['rwbs'])};")
    body = "\n".join(f"\t{line}" for line in lines)
    name = program_name(form.name)
    return f"int {name}(void *ctx)\n{{\n{body}\n\treturn {_CALLS[letter]};\n}}\n"


def _at(offset: int, size: int) -> str:
    return f"*(u{8 * size} *)((char *)ctx + {offset})"


def _load(form: Format, field: Field, size: int) -> str:
    """Return a C load of a field for a member of `size` bytes; a signed field keeps its sign."""
    if field.size not in (1, 2, 4, 8) or field.size > size or field.offset % field.size:
        raise ProbeError(
            f"{form.name}: the field {field.name} has {field.size} bytes at {field.offset}, which "
            "the bcc backend does not know: please report the kernel's version"
        )
    value = _at(field.offset, field.size)
    return f"(s{8 * field.size}){value}" if field.signed else value


def _letters(form: Format, field: Field) -> str:
    """Return a C expression for letters of rwbs as a u64, the first lowest, by aligned loads."""
    terms, offset, end = [], field.offset, field.offset + min(field.size, _RWBS_BYTES)
    while offset < end:
        size = next(s for s in (8, 4, 2, 1) if offset % s == 0 and offset + s <= end)
        terms.append(f"((u64){_at(offset, size)} << {8 * (offset - field.offset)})")
        offset += size
    return " | ".join(terms)


def check_filters(filters: Filters) -> None:
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


def filter_text(devices: list[ctypes.Structure], filters: Filters) -> str:
    """Return the C text of the filters: three macros and two functions for bpf/bcc.h.

    `u64 bt_judge(struct bt_event *)` returns BT_ADMITTED or why the event is left out, as an index
    of REASONS. `int bt_wanted_source(u32 dev)` returns whether a remap from `dev` is wanted: from a
    chosen partition, or a disk chosen whole.
    """
    # a, b and c are the first letters of rwbs, but a leading PREFLUSH.
    ops = " || ".join(f"b == '{letter}'" for letter in "RWDFZN")
    again = "a = w; b = w >> 8; c = w >> 16;"
    body = ["u64 w = event->rwbs;", "u8 a, b, c;", again]
    body.append(f"if (a == 'F' && ({ops})) {{ w >>= 8; {again} }}")
    # Without sectors an event matches if its position, other than 0, lies in the range.
    sectors = [
        f"(event->sector && event->sector >= {first}ULL && event->sector <= {last}ULL) || "
        f"(event->sector <= {last}ULL && event->sector + event->nr_sector > {first}ULL)"
        for first, last in filters.sectors
    ]
    for reason, conditions in (
        ("device", [_device(d) for d in devices]),
        ("op", [_op(n) for n in masks(filters.ops, OPS, "--op")]),
        ("sectors", sectors),
    ):
        if conditions:
            any_of = " || ".join(conditions)
            body.append(f"if (!({any_of})) return {REASONS.index(reason)};")
    origin = " || ".join(f"dev == {d.part or d.disk}U" for d in devices) or "1"
    filtering = int(bool(devices or filters.ops or filters.sectors))
    return "\n".join(
        (
            f"#define BT_FILTERING {filtering}",
            f"#define BT_ADMITTED {_ADMITTED}",
            f"#define BT_BY_DEVICE {REASONS.index('device')}",
            _inline("u64 bt_judge(struct bt_event *event)", [*body, "return BT_ADMITTED;"]),
            _inline("int bt_wanted_source(u32 dev)", [f"return {origin};"]),
        )
    )


def _device(device: ctypes.Structure) -> str:
    """Return a C condition for an event of a disk or partition; without data it matches any."""
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


def _inline(head: str, body: Iterable[str]) -> str:
    lines = "\n".join(f"\t{line}" for line in body)
    return f"static inline __attribute__((always_inline)) {head}\n{{\n{lines}\n}}\n"

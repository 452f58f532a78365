# SPDX-License-Identifier: Apache-2.0
"""Makes the bcc backend's C text for this kernel's tracepoint formats.

Field offsets and sizes are taken from the formats alone, so nothing depends on the kernel's
version or on headers. A field that a format does not have is 0 in the record, or the record's
value for "not known"; `absent` lists these fields.
"""

import ctypes
import os
from collections.abc import Iterable, Mapping
from importlib import resources

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.host.own_io import pid_namespace
from biotrail.recorder.probes.bcc import filters as bcc_filters
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


def absent(letters: Iterable[str], formats: Mapping[str, Format]) -> dict[str, list[str]]:
    """Return {event letter: names of record fields that this kernel's tracepoints do not report}.

    `letters`: of recorded events; those with all fields are left out.
    """
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


def program_name(letter: str) -> str:
    return f"bt_{BY_LETTER[letter].tracepoint.removeprefix('block_')}"


def source(
    forms: Mapping[str, Format],
    devices: list[ctypes.Structure],
    filters: Filters,
    sizes: RingSizes,
    cpus: int,
) -> str:
    """Return the whole C text for bcc: constants, records, rings, filters, a program per event.

    `forms`: formats of the events to record, by letter. `cpus`: elements of the map of rings.
    Raises ProbeError: a field has a size or offset that is not known.
    """
    texts = resources.files("biotrail.bpf")
    parts = [
        _constants(sizes, cpus),
        (texts / "records.h").read_text(),
        (texts / "bcc_ring.h").read_text(),
        _status(),
        bcc_filters.source(devices, filters),
        (texts / "bcc.h").read_text(),
        *(_program(letter, form) for letter, form in forms.items()),
    ]
    return "\n".join(parts)


def _constants(sizes: RingSizes, cpus: int) -> str:
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
    return f"#include <uapi/linux/bpf.h>\n{defined}\n"


def _status() -> str:
    """Return the text of `s32 bt_status(s32 error)`: errno of a tracepoint to blk_status_t.

    An errno without a blk_status_t is returned itself, negative.
    """
    cases = [f"case {-errno}: return {status};" for status, errno in ERRNO.items()]
    body = [
        "if (!error) return 0;",
        f"if (error > 0) return {IOERR};",
        "switch (error) {",
        *cases,
        "}",
    ]
    return bcc_filters.inline("s32 bt_status(s32 error)", [*body, "return error;"])


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
    return f"int {program_name(letter)}(void *ctx)\n{{\n{body}\n\treturn {_CALLS[letter]};\n}}\n"


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
    """Return a C expression for the first letters of rwbs as a u64, the first lowest.

    BPF loads have to be aligned, so each is as wide as its offset allows.
    """
    terms, offset, end = [], field.offset, field.offset + min(field.size, _RWBS_BYTES)
    while offset < end:
        size = next(s for s in (8, 4, 2, 1) if offset % s == 0 and offset + s <= end)
        terms.append(f"((u64){_at(offset, size)} << {8 * (offset - field.offset)})")
        offset += size
    return " | ".join(terms)

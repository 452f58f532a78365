# SPDX-License-Identifier: Apache-2.0
"""Checks the shape of the JSON in a log, which may be made up although its checksums are right.

A key may be absent, and a key that is not listed here may hold anything: a newer recorder may
have written it. The values of the listed keys have the types and ranges that readers rely on.

Private functions of (value, where) are shapes, as `shapes` explains.
"""

import base64
from typing import Any

from biotrail.recorder.log.frames import DamagedError
from biotrail.recorder.log.shapes import (
    Shape,
    anything,
    each,
    fields,
    flag,
    named,
    number,
    text,
    wrong,
)
from biotrail.recorder.schema.records import BLOCK_BYTES, Kind
from biotrail.recorder.schema.strings import characters

MAX_NS = 1 << 62
"""Highest time, 146 years: the sum of two still fits a signed 64-bit integer."""
_MAX_DEPTH = 50
_MAX_DEV = (1 << 32) - 1
_MAX_COUNT = 1 << 62
_MAX_STACK = (1 << 31) - 1


def _cgroups(value: Any, where: str) -> None:
    """Check an object: cgroup id, in decimal → path."""
    named(text)(value, where)
    for key in value:
        if not key.isdecimal() or len(key) > len(str(_MAX_COUNT)):
            raise wrong(key, f"a key of {where}", "a cgroup's number")


def _mounts(value: Any, where: str) -> None:
    """Check an object: dev_t, in decimal, from 0 to _MAX_DEV → a list of [root, mount point]."""
    named(each(_root_and_point))(value, where)
    for key in value:
        if not key.isdecimal() or not 0 <= int(key[:11]) <= _MAX_DEV:
            raise wrong(key, f"a key of {where}", "a device's number")


def _root_and_point(value: Any, where: str) -> None:
    """Check a list of two texts: [root, mount point]."""
    _pair(value, where)
    for item in value:
        text(item, where)


def _stacks(value: Any, where: str) -> None:
    """Check an object: stack id, in decimal → a list of frames."""
    named(each(_frame))(value, where)
    for key in value:
        if not key.isdecimal() or len(key) > len(str(_MAX_STACK)):
            raise wrong(key, f"a key of {where}", "a stack's number")


def _frame(value: Any, where: str) -> None:
    """Check a stack's frame: [function, module or file, offset in bytes].

    That is two texts and a whole number from 0 to 2^64 - 1. `where`: its place in the JSON. Raises
    DamagedError for any other value.
    """
    each(anything)(value, where)
    if len(value) != 3:
        raise wrong(value, where, "a function, a place and an offset")
    for item, shape in zip(value, (text, text, number(0, (1 << 64) - 1)), strict=True):
        shape(item, where)


def _records(value: Any, where: str) -> None:
    """Check an object: record kind, in decimal → text, records in base64.

    A kind has at most three digits. The records themselves are not checked. `where`: the object's
    place in the JSON. Raises DamagedError for any other value.
    """
    named(text)(value, where)
    for key, records in value.items():
        if not key.isdecimal() or len(key) > 3:
            raise wrong(key, f"a key of {where}", "a kind's number")
        try:
            base64.b64decode(records, validate=True)
        except ValueError:
            raise wrong(records, f"{where}.{key}", "records in base64") from None


def _kinds_counted(value: Any, where: str) -> None:
    """Check an object: record kind, in decimal → number of records."""
    named(_count)(value, where)
    for key in value:
        if not key.isdecimal() or len(key) > 3:
            raise wrong(key, f"a key of {where}", "a kind's number")


def _pair(value: Any, where: str) -> None:
    """Check a list of two values of any type."""
    each(anything)(value, where)
    if len(value) != 2:
        raise wrong(value, where, "a pair")


def _record_size(value: Any, where: str) -> None:
    """Check the bytes of a record: a multiple of 8 from 8 to BLOCK_BYTES."""
    number(8, BLOCK_BYTES)(value, where)
    if value % 8:
        raise wrong(value, where, "a multiple of 8")


_dev = number(0, _MAX_DEV)
_ns = number(0, MAX_NS)
_count = number(0, _MAX_COUNT)
_MAX_OP = 255
"""REQ_OP_MASK (include/linux/blk_types.h)."""
_clocks = fields(dict.fromkeys(("monotonic", "boottime", "realtime", "uncertainty"), _ns))
_device = fields(
    {
        "dev": _dev,
        "name": text,
        "dm_name": text,
        "kind": text,
        "disk": _dev,
        "start": _count,
        "sectors": _count,
        "stacked_on": each(_dev),
        "loop": fields({"backing_dev": _dev}),
        "md": fields({"level": text}),
        "queue": fields({"nr_hw_queues": _count}),
    },
    "dev",
)
_devices = each(_device)
_word = number(-(1 << 63), (1 << 64) - 1)
_seconds = number(0, 1e12, whole=False)
_filters = fields(
    {
        "devices": each(fields({"spec": text})),
        **dict.fromkeys(("pids", "tids", "comms", "cgroups", "ops", "flags"), each(anything)),
        **dict.fromkeys(("units", "containers", "pods"), each(anything)),
        **dict.fromkeys(("files", "dirs"), each(text)),
        "sectors": each(_pair),
    }
)
_kept = fields(
    {
        "seconds": _seconds,
        "reason": text,
        "trigger": fields(
            {
                **{"value": _word, "monotonic": _ns, "dev": _dev, "trigger": text, "what": text},
                "op": number(-1, _MAX_OP),
            }
        ),
        "triggers_let_pass": _count,
    }
)
_program = fields(
    {"letter": text, "run_count": _count, "run_ns": _count, "part": text},
    "letter",
    "run_count",
    "run_ns",
)
_path_cost = fields({"calls": _count, "timed": _count, "seconds": named(_seconds)})

_texts = each(text)
_pair_facts = fields(
    {
        **dict.fromkeys(("name", "begin", "end", "by", "way"), text),
        **dict.fromkeys(("keys", "where"), _texts),
        "formats": named(text),
        "names": named(named(text)),
    },
    "name",
)
_follow_facts = fields(
    {
        **dict.fromkeys(("type", "way", "detail", "detail_unit"), text),
        **dict.fromkeys(("births", "deaths"), _texts),
        **dict.fromkeys(("every", "max", "slower_ns"), _count),
        "sites": each(fields(dict.fromkeys(("name", "kind", "module", "way"), text), "name")),
        "unseen": named(_count),
    }
)
_pair_counts = fields(
    {
        **dict.fromkeys(("pairs", "begins_open", "ends_alone", "overwritten"), _count),
        **dict.fromkeys(("full", "bad_reads", "others"), _count),
        "names": named(text),
    }
)

HEADER = fields(
    {
        "log_id": text,
        "created_by": text,
        "backend": text,
        "host": fields({"name": text, "machine": text, "os": text, "cpus": _count}),
        "kernel": fields(
            {
                "release": text,
                "version": text,
                "op_enum": named(number(0, 255)),
                "flag_bits": named(number(0, 31)),
            }
        ),
        "clocks": _clocks,
        "devices": _devices,
        "command": each(text),
        "filters": _filters,
        "stacks": fields({"user": flag}),
        "files": fields({"direct": flag, "ways": each(text)}),
        "series": fields({}),
        "kept": _kept,
        "absent": named(each(text)),
        "events": fields(
            {
                "set": text,
                "letters": each(text),
                "missing": each(fields({"letter": text, "reason": text}, "letter", "reason")),
            }
        ),
        "path": fields(
            {
                "parts": each(text),
                "missing": each(fields({"part": text, "reason": text}, "part", "reason")),
            }
        ),
        "sites": fields({"pairs": each(_pair_facts), "follow": _follow_facts}),
        "rights": fields({"lacking": each(fields({"what": text, "needs": text}, "what", "needs"))}),
        "versions": fields({}),
        "schema": each(
            fields(
                {
                    "kind": number(1, Kind.PAD),
                    "size": _record_size,
                    "fields": each(fields({"name": text}, "name")),
                },
                "kind",
                "size",
            )
        ),
    }
)
_sites = fields({"pairs": each(_pair_counts), "follow": named(_count)})
_run = {"seconds": _seconds, "path": _path_cost, "sites": _sites}
END = fields(
    {
        **_run,
        "run": fields(_run),
        "clocks": _clocks,
        "stopped": _clocks,
        "reason": text,
        "programs": each(_program),
        "log": fields({"names": _count}),
        "left_out": fields({"bios": named(_count), "events": _kinds_counted, "unfollowed": _count}),
        "recorder": fields(
            {"cpu_seconds": _seconds, "max_rss_bytes": _count},
            "cpu_seconds",
            "max_rss_bytes",
        ),
    }
)
LOSSES = each(
    fields(
        {
            "start": _ns,
            "end": _ns,
            "cpu": number(-1, 0xFFFF),
            "kind": number(0, 0xFF),
            "count": number(-1, _MAX_COUNT),
        },
        "start",
        "end",
    )
)
_NOTES: dict[str, Shape] = {
    "devices": fields({"devices": _devices}),
    "names": fields(
        {"monotonic": _ns, "count": _count, "records": _records}, "monotonic", "count", "records"
    ),
    "stacks": fields(dict.fromkeys(("kernel", "user", "wait", "site"), _stacks)),
    "mounts": _mounts,
    "call_timing": fields(
        {"until": _ns, "percent": _seconds, "budget": _seconds},
        "until",
    ),
    "paused": fields(
        {
            "name": text,
            "label": text,
            "cgroup": text,
            "pids": each(_count),
            "times": _count,
            "from": _ns,
            "to": _ns,
        },
        "from",
        "to",
    ),
    "cpus": fields(
        {
            "from": _ns,
            "to": _ns,
            "steal_ns": _ns,
            "throttled_ns": named(_ns),
            "pids": named(each(_count)),
        },
        *("from", "to", "steal_ns", "throttled_ns", "pids"),
    ),
    "containers": fields(dict.fromkeys(("containers", "pods"), named(named(text)))),
    "titles": named(named(text)),
    "cgroups": lambda value, where: _cgroups(value.get("cgroups", value), where),
}


def note(name: str, payload: dict[str, Any]) -> None:
    """Check the payload of a note called `name`: that its values have the types readers rely on.

    The payload of a note with a name that is not a key of _NOTES may hold anything. Raises
    DamagedError, which names the first value that is wrong.
    """
    if name in _NOTES:
        _NOTES[name](payload, name)


def plain(value: Any, depth: int = 0) -> Any:
    """Return a copy of a JSON value in which all texts, keys too, are valid Unicode.

    Lone surrogates, which stand for bytes of file names and command lines that are no UTF-8, become
    U+FFFD. Control characters stay: machine formats quote them, and text for people is escaped by
    `recorder.schema.strings` when it is printed. `depth`: levels of lists and objects around
    `value`. Raises DamagedError where lists and objects are nested more than _MAX_DEPTH deep.
    """
    if isinstance(value, str):
        return characters(value)
    if depth > _MAX_DEPTH:
        raise DamagedError(f"is nested more than {_MAX_DEPTH} deep")
    if isinstance(value, list):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {plain(key): plain(item, depth + 1) for key, item in value.items()}
    return value

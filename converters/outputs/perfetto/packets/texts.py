# SPDX-License-Identifier: Apache-2.0
"""Texts of slices' arguments that no kernel names: kinds of records, I/O priorities, sizes."""

from biotrail.recorder.schema.records import BY_KIND, Kind

_UNITS = ("B", "KiB", "MiB", "GiB")
_IOPRIO_CLASSES = ("none", "realtime", "best-effort", "idle")


def record_name(kind: int) -> str:
    """Return a record kind's name: `issue`, `queue`, …; `unknown` for 0; `kind 99` if newer."""
    known = {int(k): BY_KIND[Kind(k)].name for k in BY_KIND}
    return known.get(kind, "unknown" if kind == 0 else f"kind {kind}")


def ioprio_text(ioprio: int) -> str:
    """Return an I/O priority as ionice shows it, `best-effort 4`; empty for 0.

    ioprio: class << 13 | hint << 3 | level (IOPRIO_PRIO_VALUE_HINT). The level is shown for
    realtime and best-effort only, a hint behind it (`idle, hint 1`). A class beyond idle is shown
    as `class 4 level 0`, without a hint.
    """
    kind, hint, level = ioprio >> 13, ioprio >> 3 & 0x3FF, ioprio & 7
    if not ioprio:
        return ""
    if kind >= len(_IOPRIO_CLASSES):
        return f"class {kind} level {level}"
    text = _IOPRIO_CLASSES[kind]
    if kind in (1, 2):
        text += f" {level}"
    return f"{text}, hint {hint}" if hint else text


def size_text(size: int) -> str:
    """Return bytes in the largest unit that leaves at least one: `4 KiB`; empty for 0."""
    if not size:
        return ""
    unit = min((size.bit_length() - 1) // 10, len(_UNITS) - 1)
    return f"{round(size / (1 << 10 * unit), 1):g} {_UNITS[unit]}"

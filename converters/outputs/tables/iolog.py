# SPDX-License-Identifier: Apache-2.0
"""Write bios as an fio iolog, version 3, which fio replays at the times they were queued.

A bio of a lower device is left out: replaying the upper device's bio creates it again.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import NEVER, Bios, Bool, Lifecycles
from biotrail.converters.lifecycles.operations import operations
from biotrail.recorder.schema.strings import shown

_HEADER = "fio version 3 iolog"
_START_US = 1
"""Time of the first line: fio takes 0 for no time, and would not wait before the next line."""

_SECTOR = 512
_MOST_HELD = 1_000_000
"""Most bios that wait for one that was queued before them and has not ended."""

_ACTIONS = {
    "read": "read",
    "write": "write",
    "write_zeroes": "write",
    "flush": "sync",
    "discard": "trim",
    "secure_erase": "trim",
}
"""fio's action for each operation; fio has no others. write_zeroes is replayed as a write."""


@dataclass
class Summary:
    """What was written. left_out: number of bios by reason."""

    ios: int = 0
    devices: list[str] = field(default_factory=list)
    """Files (/dev/NAME) that the iolog uses."""
    left_out: Counter[str] = field(default_factory=Counter)
    first_ns: int = NEVER
    """Q of the first line, ns of CLOCK_MONOTONIC; NEVER: no line."""


def write(
    windows: Iterator[Lifecycles], context: Context, out: BinaryIO, *, upper_only: bool = True
) -> Summary:
    """Write the bios of all windows as an iolog, in the order of Q; return what was written.

    upper_only: leave out bios that work for a bio of an upper device. Bios in flight at the end are
    not written, nor counted as left out.
    """
    writer = _Writer(context, out)
    held: list[Bios] = []
    for window in windows:
        # A window has the bios that ended in it: they wait for those with an earlier Q.
        held.append(window.bios.take(_chosen(window.bios, context, writer.summary, upper_only)))
        queued = window.open_bios.queue[window.open_bios.queue != NEVER]
        edge = int(queued.min(initial=window.end))
        if sum(map(len, held)) > _MOST_HELD:
            edge = window.end
        bios = Bios.concatenate(held)
        ready = bios.queue < edge
        held = [bios.take(~ready)]
        writer.write(bios.take(ready))
        del bios, ready, window  # not beside the next window
    writer.write(Bios.concatenate([Bios.none(), *held]))
    return writer.summary


def _chosen(bios: Bios, context: Context, summary: Summary, upper_only: bool) -> Bool:
    """Mark the bios (n,) to write; count the others in `summary.left_out`."""
    codes, names = operations(context, bios.opf, bios.bytes)
    unknown = np.array([name not in _ACTIONS for name in [*names, ""]], np.bool_)
    reasons: dict[str, Bool] = {
        "queued before the log began": bios.queue == NEVER,
        "done for an upper device's bio": (bios.parent != NEVER) & upper_only,
        "an operation that fio has not": unknown[codes],
    }
    wanted = np.ones(len(bios), np.bool_)
    for reason, out in reasons.items():
        summary.left_out[reason] += int((wanted & out).sum())
        wanted &= ~out
    return wanted


class _Writer:
    def __init__(self, context: Context, out: BinaryIO) -> None:
        self._context, self._out = context, out
        self.summary = Summary()
        self._files: dict[int, str] = {}
        """Per dev_t with a line: its file, /dev/NAME."""
        out.write(f"{_HEADER}\n".encode())

    def write(self, bios: Bios) -> None:
        """Write a line for each bio, in the order of Q: `µs /dev/NAME ACTION OFFSET BYTES`."""
        if not len(bios):
            return
        bios = bios.take(np.argsort(bios.queue, kind="stable"))
        if self.summary.first_ns == NEVER:
            self.summary.first_ns = int(bios.queue[0])
        micros = (bios.queue - self.summary.first_ns) // 1000 + _START_US
        lines = []
        for dev in np.unique(bios.dev).tolist():
            if dev not in self._files:
                entry = self._context.devices.get(dev, {})
                name = shown(str(entry.get("name") or self._context.device_name(dev)))
                name = f"/dev/{name.replace(' ', '_')}"  # a space would end the word
                self._files[dev] = name
                self.summary.devices.append(name)
                lines += [f"{micros[0]} {name} add\n", f"{micros[0]} {name} open\n"]
        codes, names = operations(self._context, bios.opf, bios.bytes)
        actions = [_ACTIONS.get(name, "") for name in names]
        for time, dev, code, sector, size in zip(
            micros.tolist(),
            bios.dev.tolist(),
            codes.tolist(),
            bios.sector.tolist(),
            bios.bytes.tolist(),
            strict=True,
        ):
            offset = sector * _SECTOR if size else 0
            lines.append(f"{time} {self._files[dev]} {actions[code]} {offset} {size}\n")
        self.summary.ios += len(bios)
        self._out.write("".join(lines).encode())

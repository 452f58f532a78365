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
    writer = _Writer(context, out, upper_only)
    for window in windows:
        writer.add(window)
    writer.write(None)
    return writer.summary


class _Writer:
    """Writes bios in the order of Q; a window has the bios that ended in it."""

    def __init__(self, context: Context, out: BinaryIO, upper_only: bool) -> None:
        self._context = context
        self._out = out
        self._upper_only = upper_only
        self.summary = Summary()
        self._held: list[Bios] = []
        """Bios that wait for one with an earlier Q."""
        self._files: dict[int, str] = {}
        """Per dev_t with a line: its file, /dev/NAME."""
        out.write(f"{_HEADER}\n".encode())

    def add(self, window: Lifecycles) -> None:
        """Hold a window's ended bios; write those queued before any still in flight."""
        self._held.append(window.bios.take(self._select(window.bios)))
        queued = window.open_bios.queue[window.open_bios.queue != NEVER]
        edge = min(window.end, int(queued.min())) if len(queued) else window.end
        if sum(map(len, self._held)) > _MOST_HELD:
            edge = window.end
        self.write(edge)

    def _select(self, bios: Bios) -> Bool:
        """Mark the bios (n,) to write; count the others in `summary.left_out`."""
        codes, names = operations(self._context, bios.opf, bios.bytes)
        unknown = np.array([name not in _ACTIONS for name in [*names, ""]], np.bool_)
        reasons: dict[str, Bool] = {
            "queued before the log began": bios.queue == NEVER,
            "done for an upper device's bio": (bios.parent != NEVER) & self._upper_only,
            "an operation that fio has not": unknown[codes],
        }
        wanted = np.ones(len(bios), np.bool_)
        for reason, out in reasons.items():
            self.summary.left_out[reason] += int((wanted & out).sum())
            wanted &= ~out
        return wanted

    def write(self, edge: int | None) -> None:
        """Write the held bios with Q before `edge` (ns; None: all), in the order of Q."""
        if not self._held:
            return
        held = Bios.concatenate(self._held)
        ready = np.ones(len(held), np.bool_) if edge is None else held.queue < edge
        self._held = [held.take(~ready)]
        bios = held.take(ready)
        bios = bios.take(np.argsort(bios.queue, kind="stable"))
        if len(bios):
            self._lines(bios)

    def _lines(self, bios: Bios) -> None:
        """Write a line for each bio, in their order: `µs /dev/NAME ACTION OFFSET BYTES`."""
        if self.summary.first_ns == NEVER:
            self.summary.first_ns = int(bios.queue[0])
        micros = (bios.queue - self.summary.first_ns) // 1000 + _START_US
        lines = []
        for dev in np.unique(bios.dev).tolist():
            if dev not in self._files:
                name = f"/dev/{self._name(dev)}"
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

    def _name(self, dev: int) -> str:
        """Return the device's name below /dev; a space, which would end the word, becomes `_`."""
        entry = self._context.devices.get(dev, {})
        name = str(entry.get("name") or self._context.device_name(dev))
        return shown(name).replace(" ", "_")

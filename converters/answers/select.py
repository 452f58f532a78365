# SPDX-License-Identifier: Apache-2.0
"""A window with the I/O of some devices alone."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

import numpy as np

from converters.model.context import Context, dev_numbers
from converters.model.tables import I64, Bios, Lifecycles, Requests, Stages
from recorder.errors import ConversionError

T = TypeVar("T", Bios, Requests)


def find_devices(names: Collection[str], context: Context) -> set[int]:
    """The disks that names (`nvme0n1`, `/dev/nvme0n1`, `259:0`) stand for.

    Raises ConversionError: a name that no device of the log has.
    """
    known: dict[str, int] = {}
    for dev, entry in context.devices.items():
        for name in (context.device_name(dev), str(entry.get("name", "")), dev_numbers(dev)):
            known[name] = context.disk_of(dev)
    found = set()
    for name in names:
        short = name.removeprefix("/dev/").removeprefix("mapper/")
        if short not in known:
            disks = sorted({context.device_name(dev) for dev in known.values()})
            told = ", ".join(disks) or "none: give major:minor"
            number = _numbers(short)
            if number is None:
                raise ConversionError(f"the log knows no device {name}; it knows {told}")
            known[short] = number
        found.add(known[short])
    return found


def _numbers(text: str) -> int | None:
    """The dev_t of `major:minor`."""
    major, _, minor = text.partition(":")
    if major.isascii() and major.isdigit() and minor.isascii() and minor.isdigit():
        return int(major) << 20 | int(minor)
    return None


def of_devices(windows: Iterable[Lifecycles], devices: Collection[int]) -> Iterator[Lifecycles]:
    """The windows with these disks' bios and requests alone."""
    wanted = np.array(sorted(devices), dtype=np.int64)
    for window in windows:
        bios, bio_stages = _kept(window.bios, window.bio_stages, wanted)
        requests, request_stages = _kept(window.requests, window.request_stages, wanted)
        edges = window.edges
        yield replace(
            window,
            bios=bios,
            bio_stages=bio_stages,
            requests=requests,
            request_stages=request_stages,
            edges=edges.take(np.isin(edges.bio, bios.number)),
            open_bios=window.open_bios.take(np.isin(window.open_bios.dev, wanted)),
            open_requests=window.open_requests.take(np.isin(window.open_requests.dev, wanted)),
        )


def _kept(table: T, stages: Stages, wanted: I64) -> tuple[T, Stages]:
    rows = np.isin(table.dev, wanted)
    if rows.all():
        return table, stages
    kept = table.take(rows)
    return kept, stages.take(np.isin(stages.owner, kept.number))

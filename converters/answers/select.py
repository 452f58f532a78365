# SPDX-License-Identifier: Apache-2.0
"""A window with the I/O of some devices alone."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

import numpy as np

from converters.answers.choosing import device_named
from converters.model.context import Context
from converters.model.tables import I64, Bios, Lifecycles, Requests, Stages
from recorder.errors import ConversionError

T = TypeVar("T", Bios, Requests)


def of_devices(
    windows: Iterable[Lifecycles], names: Collection[str], context: Context
) -> Iterator[Lifecycles]:
    """The windows with the bios and requests of some disks alone.

    names: `nvme0n1`, `/dev/nvme0n1`, `259:0`. Raises ConversionError for a partition, and, at the
    end, for what the log does not have: a device can appear while it is recorded.
    """
    seen: set[int] = set()
    for window in windows:
        seen.update(np.unique(window.bios.dev).tolist())
        devices = [dev for name in names if (dev := _device(name, context)) is not None]
        yield _of(window, np.array(devices, dtype=np.int64))
    known = {*context.devices, *seen}
    for name in names:
        if _device(name, context) not in known:
            told = ", ".join(sorted({context.device_name(context.disk_of(d)) for d in known}))
            raise ConversionError(f"the log has no device {name}; it has {told or 'none'}")


def _device(name: str, context: Context) -> int | None:
    """The disk of a name; None while the log has not told of it."""
    dev = device_named(context, name)
    if dev in context.devices and (disk := context.disk_of(dev)) != dev:
        raise ConversionError(f"{name} is a partition: give its disk, {context.device_name(disk)}")
    return dev


def _of(window: Lifecycles, wanted: I64) -> Lifecycles:
    bios, bio_stages = _kept(window.bios, window.bio_stages, wanted)
    requests, request_stages = _kept(window.requests, window.request_stages, wanted)
    edges = window.edges
    return replace(
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

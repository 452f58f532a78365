# SPDX-License-Identifier: Apache-2.0
"""Lists the block devices of this host with their facts, and finds the one that a user names."""

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from biotrail.recorder.host import device_paths, device_sysfs
from biotrail.recorder.host.device_mounts import REAL, Roots, read_mounts
from biotrail.recorder.schema.device_numbers import dev_number, dev_text, kernel_dev
from biotrail.recorder.schema.errors import ProbeError

_TAGS = {
    "UUID": "disk/by-uuid",
    "LABEL": "disk/by-label",
    "PARTUUID": "disk/by-partuuid",
    "PARTLABEL": "disk/by-partlabel",
    "ID": "disk/by-id",
}
_NAMED_AT_MOST = 8


def snapshot(roots: Roots = REAL, only: set[int] | None = None) -> list[dict[str, Any]]:
    """Return the facts of all block devices and partitions, as in a log's header, sorted by dev_t.

    `only`: read the devices with these dev_t alone, which is quicker on hosts with many. dev, disk,
    stacked_on, loop.backing_dev are kernel dev_t (major << 20 | minor); start and sectors are in
    512-byte sectors. A disk with NVMe multipath is stacked on its path disks. What is not known has
    no key; a device that is removed meanwhile is left out.
    """
    paths = _paths(roots)
    mounts = read_mounts(roots, set(paths))
    wanted = [(dev, path) for dev, path in paths.items() if only is None or dev in only]
    entries = (device_sysfs.entry(path, dev, roots, mounts) for dev, path in wanted)
    found = [e for e in entries if e is not None]
    hidden = device_paths.by_disk(paths)
    for entry in found:
        if below := hidden.get(entry["name"]):
            entry["stacked_on"] = below
    return sorted(found, key=lambda e: int(e["dev"]))


def _paths(roots: Roots) -> dict[int, str]:
    """Return the sysfs directories of all devices and NVMe path disks by dev_t; {}: no sysfs."""
    directory = f"{roots.sys}/dev/block"
    try:
        names = os.listdir(directory)
    except OSError:
        return {}
    found = {}
    for name in names:
        dev = dev_number(name)
        if dev is not None:
            found[dev] = os.path.realpath(f"{directory}/{name}")
    return device_paths.hidden(roots) | found


def masked(roots: Roots = REAL) -> str | None:
    """Return what hides the devices' facts, and how to have them shown; None: nothing does."""
    directory = f"{roots.sys}/dev/block"
    for path, wanted in ((directory, False), (f"{roots.sys}/class/block", True)):
        try:
            if bool(os.listdir(path)) is not wanted:
                return None
        except OSError:
            if wanted:
                return None
    return (
        f"{directory} is masked, as podman does it, so devices have numbers alone: "
        f"--security-opt unmask={directory}"
    )


def resolve(spec: str, roots: Roots = REAL) -> tuple[int, int]:
    """Return (dev_t of the disk, dev_t of the partition or 0) of the device that `spec` names.

    `spec`: a name (vda1), a path or link (/dev/disk/by-id/…), a mapper name, major:minor, UUID=,
    LABEL= or another key of _TAGS; only if it is none of these, an absolute path that is a mount
    point. Raises ProbeError.
    """
    paths = _paths(roots)
    dev = _find_by_name(spec, roots, paths)
    if dev is None and spec.startswith("/"):
        dev = _find_by_mount_point(spec, roots, paths)
    if dev is None:
        raise ProbeError(_unknown_message(spec, roots, paths))
    path = paths.get(dev)
    if path is None:
        raise ProbeError(
            f"{spec}: is block device {dev_text(dev)}, which {roots.sys}/dev/block does not list: "
            "it is gone, or belongs to another host; see `lsblk` for what is here"
        )
    if not os.path.exists(f"{path}/partition"):
        return dev, 0
    disk = dev_number(device_sysfs.read(f"{os.path.dirname(path)}/dev"))
    if disk is None:
        raise ProbeError(f"{spec}: went away while it was looked up; see `lsblk` for what is here")
    return disk, dev


def _find_by_name(spec: str, roots: Roots, paths: dict[int, str]) -> int | None:
    """Return the dev_t of the device that `spec` names, unless by its mount point.

    A path or tag that leads to no device is not tried otherwise.
    """
    by_number = dev_number(spec)
    if by_number is not None and by_number in paths:
        return by_number
    if spec.startswith(("/", "./", "../")):
        return roots.number(spec)
    tag, equals, value = spec.partition("=")
    if equals and tag.upper() in _TAGS:
        # udev escapes characters that its link names may not contain, usually spaces.
        value = value.strip('"').replace(" ", "\\x20")
        return roots.number(f"{roots.dev}/{_TAGS[tag.upper()]}/{value}")
    for dev, names in _names(paths):
        if spec in names:
            return dev
    links = (f"{roots.dev}/{place}{spec}" for place in ("", "mapper/", "disk/by-id/", "md/"))
    found = (roots.number(link) for link in links)
    return next((number for number in found if number is not None), None)


def _names(paths: dict[int, str]) -> Iterator[tuple[int, list[str]]]:
    """Yield (dev_t, names) of each device: the kernel's name and, of dm, the mapper's."""
    for dev, path in paths.items():
        names = [os.path.basename(path).replace("!", "/")]
        mapper = device_sysfs.read(f"{path}/dm/name")
        yield dev, names if mapper is None else [*names, mapper]


def _find_by_mount_point(spec: str, roots: Roots, paths: dict[int, str]) -> int | None:
    """Return the dev_t of the only device mounted at `spec`; None: it is no mount point."""
    mounts = read_mounts(roots, set(paths))
    places = (os.path.normpath(spec), os.path.realpath(spec))
    point = next((place for place in places if place in mounts.st_devs), None)
    if point is None:
        return None
    below = mounts.devices.get(mounts.st_devs[point], [])
    if not below:
        raise ProbeError(
            f"{spec}: is a mount point of no block device (in memory, or remote); "
            f"name the device to record: {_list_names(paths)}"
        )
    if len(below) > 1:
        named = ", ".join(_name(dev, paths) for dev in below)
        raise ProbeError(f"{spec}: is on several devices; name those to record: {named}")
    return below[0]


def _unknown_message(spec: str, roots: Roots, paths: dict[int, str]) -> str:
    """Return the message for a `spec` that is no block device: what it is, what to give instead."""
    if why := masked(roots):
        return f"{spec}: cannot be looked up: {why}"
    st_dev = None
    if "/" in spec:
        with suppress(OSError):
            st_dev = kernel_dev(os.stat(spec).st_dev)
    if st_dev is not None:
        mounts = read_mounts(roots, set(paths))
        below = ", ".join(_name(dev, paths) for dev in mounts.devices.get(st_dev, []))
        instead = f"it lies on {below}: name that" if below else f"name one of {_list_names(paths)}"
        return f"{spec}: is neither a block device nor a mount point; {instead}"
    names = [name for _, several in _names(paths) for name in several]
    import difflib  # takes 5 ms, for an error

    near = difflib.get_close_matches(os.path.basename(spec), names, n=_NAMED_AT_MOST, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else f"this host has {_list_names(paths)}"
    return f"{spec}: there is no such block device or mount point; {hint} (`lsblk` lists them)"


def _list_names(paths: dict[int, str]) -> str:
    # A device without a size, such as a loop device without a file, is not worth suggesting.
    used = {d: p for d, p in paths.items() if device_sysfs.read(f"{p}/size") not in (None, "0")}
    names = sorted(name for _, several in _names(used) for name in several)
    rest = len(names) - _NAMED_AT_MOST
    shown = ", ".join(names[:_NAMED_AT_MOST]) or "no block device"
    return f"{shown} and {rest} more" if rest > 0 else shown


def _name(dev: int, paths: dict[int, str]) -> str:
    return os.path.basename(paths[dev]).replace("!", "/") if dev in paths else dev_text(dev)

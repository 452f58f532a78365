# SPDX-License-Identifier: Apache-2.0
"""LTTng's directories: a trace in the Common Trace Format, and sessions that hold some.

A trace is a directory with a file `metadata`, which begins with a magic number (packets, as LTTng
writes) or a comment (CTF 1.8, 7.1), and a file for each CPU and channel. A session directory holds
the kernel's trace in `kernel` and user space's below `ust`; a rotated one has them in
`archives/CHUNK`, snapshots in `snapshot-NAME`, a relay daemon's in `HOST/SESSION`.
"""

import os
import struct
from pathlib import Path

from biotrail.converters.inputs.foreign import without_block_events
from biotrail.recorder.schema.errors import LogFormatError

_METADATA = "metadata"
_MAGIC = (b"\x57\x1d\xd1\x75", b"\x75\xd1\x1d\x57")
_MAGIC_NUMBER = 0x75D11D57
_TEXT = b"/* CTF 1."
_STREAM_MAGIC = (b"\xc1\x1f\xfc\xc1", b"\xc1\xfc\x1f\xc1")
_KERNEL = ("kernel", "archives/*/kernel", "*/kernel")
_NAMED_AT_MOST = 4


_PACKET = "I16xIII5x"
"""struct metadata_packet_header (CTF 1.8, 7.1): magic, UUID, checksum, bits of content, bits of the
packet, and five bytes of schemes and versions."""


def is_lttng(path: str | os.PathLike[str]) -> bool:
    place = Path(path)
    return place.is_dir() and any(_traces(place))


def is_part(first: bytes) -> bool:
    return first.startswith((*_STREAM_MAGIC, *_MAGIC, _TEXT))


def find(path: str | os.PathLike[str]) -> tuple[list[Path], list[Path]]:
    """Return (the kernel's traces that a directory holds, to be read as one; other domains' parts).

    Raises LogFormatError: it is a file; it holds traces of user space alone; or several traces of
    the kernel that are not one recording's, as snapshots, which repeat each other's events; or
    metadata are empty, or packets of which one is not whole.
    """
    place = Path(path)
    if place.is_file():
        raise LogFormatError(f"{path}: a file of a CTF trace: give the directory that it is in")
    traces, others = _traces(place)
    if not traces:
        raise without_block_events(str(path), "lttng", "user space alone")
    parts = (trace.relative_to(place).parts for trace in traces)
    # The parts of one session that was rotated belong together.
    if len(traces) > 1 and not all(part[0] in ("archives", "kernel") for part in parts):
        named = ", ".join(map(str, traces[:_NAMED_AT_MOST]))
        named += ", …" if len(traces) > _NAMED_AT_MOST else ""
        raise LogFormatError(f"{path}: {len(traces)} recordings: give one of them: {named}")
    for metadata in (trace / _METADATA for trace in traces):
        try:
            data = metadata.read_bytes()
        except OSError as error:
            raise LogFormatError(f"{metadata}: cannot be read: {error.strerror}") from error
        # Of packets each must be whole: babeltrace2 2.0 reads one without end for ever.
        order = {_MAGIC[0]: "<", _MAGIC[1]: ">"}.get(data[:4])
        header, at = struct.Struct(f"{order or '<'}{_PACKET}"), 0
        while order is not None and at + header.size <= len(data):
            magic, _, content, packet = header.unpack_from(data, at)
            if magic != _MAGIC_NUMBER or not 8 * header.size <= content <= packet:
                break
            at += packet // 8
        if not data or (order is not None and at != len(data)):
            raise LogFormatError(
                f"{metadata}: cut or damaged at offset {min(at, len(data))}, and without metadata "
                "no event can be read: copy the trace again, whole"
            )
    return traces, others


def _traces(place: Path) -> tuple[list[Path], list[Path]]:
    """Return (the kernel's traces, user space's parts) in a directory, sorted."""
    others = sorted(p for p in (place / "ust", *place.glob("*/ust")) if p.is_dir())
    if _is_trace(place):
        return [place], others
    found = {path for where in _KERNEL for path in place.glob(where) if _is_trace(path)}
    return sorted(found), others


def _is_trace(directory: Path) -> bool:
    """Return whether a directory has metadata as a trace's; empty ones, of a cut copy, count."""
    try:
        with open(directory / _METADATA, "rb") as stream:
            first = stream.read(len(_TEXT))
    except OSError:
        return False
    return not first or first.startswith((*_MAGIC, _TEXT))

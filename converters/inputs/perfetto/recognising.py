# SPDX-License-Identifier: Apache-2.0
"""Recognition of a Perfetto trace by its first bytes."""

from biotrail.converters.inputs.unpacking import beginning

_PACKET_TAG = b"\x0a"
"""Trace.packet: field 1, bytes."""
_ENOUGH = 4096
_KNOWN_FIELDS = 1024
"""TracePacket's fields have lower numbers, but for those of tests and extensions."""


def is_perfetto(first: bytes) -> bool:
    """Return whether bytes begin as a Perfetto trace does, plain or compressed.

    first: as `Beginning.first`. The first packet has to hold fields alone that a TracePacket may
    have.
    """
    first = beginning(first, _ENOUGH)
    return first.startswith(_PACKET_TAG) and _has_packets(first)


def _has_packets(first: bytes) -> bool:
    """Return whether bytes begin with a packet, which another follows, or the end."""
    length, begin = _varint(first, 1)
    end = begin + length
    if length < 0 or not _is_packet(first[begin:end], end > len(first)):
        return False
    return len(first) >= _ENOUGH if end > len(first) else first[end : end + 1] in (b"", _PACKET_TAG)


def _is_packet(data: bytes, cut: bool) -> bool:
    """Return whether bytes are fields as a TracePacket may have. cut: the last is not whole."""
    at = fields = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag < 0:
            return cut
        kind, number = tag & 7, tag >> 3
        if not 0 < number < _KNOWN_FIELDS or kind not in (0, 1, 2, 5):
            return False
        fields += 1
        if kind in (0, 2):
            value, at = _varint(data, at)
            if value < 0:
                return cut
            at += value if kind == 2 else 0
        else:
            at += 8 if kind == 1 else 4
    return fields > 0 and (cut or at == len(data))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return (value, end) of a varint; value -1: it is cut off or longer than 10 bytes."""
    value = 0
    for shift, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at + shift + 1
    return -1, len(data)

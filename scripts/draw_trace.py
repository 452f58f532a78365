# SPDX-License-Identifier: Apache-2.0
"""Draws a stretch of a Perfetto trace as SVG for the docs: python scripts/draw_trace.py IN OUT.

Reads the trace itself, with Perfetto's own protobuf classes: tracks, slices and counters as
a viewer would show them. Draws one device, the stretch of `--span` with the most bios.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import click
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

WIDTH, LEFT, ROW, GAP, GRAPH = 1200, 150, 15, 6, 46
NS = 1_000_000
COLOURS = {
    "read": "#4c78a8",
    "write": "#e4853b",
    "flush": "#9467bd",
    "discard": "#7f7f7f",
    "Q2G": "#f2c14e",
    "G2I": "#f6a35c",
    "I2D": "#e8766d",
    "G2D": "#e8766d",
    "Q2M": "#c9d45c",
    "M2I": "#a9b84f",
    "M2D": "#8cc06d",
    "D2C": "#59a5a9",
    "R2D": "#d62728",
    "flushing": "#b79ad1",
    "pre-flush": "#b79ad1",
    "post-flush": "#b79ad1",
    "device flush": "#c5a5cf",
}


@dataclass
class Track:
    """One descriptor, its slices (begin, end, depth, name) and samples (ts, value)."""

    name: str
    parent: int
    slices: list[tuple[int, int, int, str]] = field(default_factory=list)
    samples: list[tuple[int, float]] = field(default_factory=list)


def load(path: Path) -> dict[int, Track]:
    trace = pb.Trace()
    trace.ParseFromString(path.read_bytes())
    tracks: dict[int, Track] = {}
    names: dict[tuple[int, int], str] = {}
    open_slices: dict[int, list[tuple[int, str]]] = defaultdict(list)
    clock: dict[int, int] = defaultdict(int)
    defaults: dict[int, Any] = {}
    for packet in trace.packet:
        sequence = packet.trusted_packet_sequence_id
        for name in packet.interned_data.event_names:
            names[sequence, name.iid] = name.name
        if packet.HasField("trace_packet_defaults"):
            defaults[sequence] = packet.trace_packet_defaults
        if packet.HasField("clock_snapshot"):
            for reading in packet.clock_snapshot.clocks:
                if reading.is_incremental:
                    clock[sequence] = reading.timestamp * (reading.unit_multiplier_ns or 1)
        if packet.HasField("track_descriptor"):
            d = packet.track_descriptor
            tracks[d.uuid] = Track(d.name or d.static_name, d.parent_uuid)
        if packet.HasField("track_event"):
            _event(packet, sequence, tracks, names, open_slices, clock, defaults)
    return tracks


def _event(
    packet: Any,
    sequence: int,
    tracks: dict[int, Track],
    names: dict[tuple[int, int], str],
    open_slices: dict[int, list[tuple[int, str]]],
    clock: dict[int, int],
    defaults: dict[int, Any],
) -> None:
    event = packet.track_event
    used = packet.timestamp_clock_id or (
        defaults[sequence].timestamp_clock_id if sequence in defaults else 0
    )
    if 64 <= used <= 127:
        clock[sequence] += packet.timestamp
        ts = clock[sequence]
    else:
        ts = packet.timestamp
    uuid = event.track_uuid or (
        defaults[sequence].track_event_defaults.track_uuid if sequence in defaults else 0
    )
    track = tracks.get(uuid)
    if track is None:
        return
    if event.type == pb.TrackEvent.TYPE_SLICE_BEGIN:
        open_slices[uuid].append((ts, event.name or names.get((sequence, event.name_iid), "")))
    elif event.type == pb.TrackEvent.TYPE_SLICE_END and open_slices[uuid]:
        begin, name = open_slices[uuid].pop()
        track.slices.append((begin, ts, len(open_slices[uuid]), name))
    elif event.type == pb.TrackEvent.TYPE_COUNTER:
        track.samples.append((ts, event.double_counter_value or event.counter_value))


def busiest(tracks: list[Track], span: int) -> int:
    """Where the stretch of `span` ns with the most bios begins."""
    begins = sorted(s[0] for t in tracks for s in t.slices if s[2] == 0)
    best, at, low = 0, begins[0] if begins else 0, 0
    for high, begin in enumerate(begins):
        while begins[low] < begin - span:
            low += 1
        if high - low > best:
            best, at = high - low, begins[low]
    return at


class Picture:
    """An SVG that grows downward."""

    def __init__(self, begin: int, span: int) -> None:
        self._begin, self._span = begin, span
        self._parts: list[str] = []
        self._y = 8

    def x(self, ts: int) -> float:
        inside = min(max(ts - self._begin, 0), self._span)
        return LEFT + inside / self._span * (WIDTH - LEFT - 10)

    def heading(self, text: str) -> None:
        self._text(8, self._y + 12, text, bold=True)
        self._y += 20

    def graph(self, track: Track) -> None:
        end = self._begin + self._span
        before = [(self._begin, v) for ts, v in track.samples if ts < self._begin][-1:]
        points = before + [s for s in track.samples if self._begin <= s[0] <= end]
        top = max([v for _, v in points] or [1]) or 1
        base = self._y + GRAPH - 4
        path = f"M{LEFT},{base}"
        for ts, value in points:
            path += f"H{self.x(ts):.1f}V{base - value / top * (GRAPH - 12):.1f}"
        path += f"H{WIDTH - 10}V{base}Z"
        self._parts.append(f'<path d="{path}" fill="#a9c7e8" stroke="#4c78a8"/>')
        self._text(8, self._y + 24, track.name)
        most = f"{top / 1e6:.3g} MB/s" if track.name.endswith("bytes/s") else f"{top:g}"
        self._text(LEFT + 4, self._y + 12, f"max {most}", small=True)
        self._y += GRAPH

    def lanes(self, name: str, tracks: list[Track], most: int) -> None:
        """Lanes below each other: an I/O, and its stages under it."""
        self._text(8, self._y + 12, name)
        end = self._begin + self._span
        shown = [t for t in tracks if any(s[1] > self._begin and s[0] < end for s in t.slices)]
        for track in shown[:most]:
            for begin, stop, depth, label in track.slices:
                if stop > self._begin and begin < end and depth <= 1:
                    self._slice(begin, stop, depth, label)
            self._y += 2 * ROW + GAP
        self._y += GAP

    def _slice(self, begin: int, stop: int, depth: int, label: str) -> None:
        left, right = self.x(begin), self.x(stop)
        colour = COLOURS.get(label, "#b0b0b0")
        width = max(right - left, 0.6)
        y = self._y + depth * ROW
        self._parts.append(
            f'<rect x="{left:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 1}" fill="{colour}"/>'
        )
        if width > 7 * len(label):
            self._text(left + 3, y + 11, label, small=True)

    def _text(
        self, x: float, y: float, text: str, *, bold: bool = False, small: bool = False
    ) -> None:
        style = ' font-weight="bold"' if bold else ' font-size="11"' if small else ""
        self._parts.append(f'<text x="{x:.1f}" y="{y}"{style}>{escape(text)}</text>')

    def svg(self) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self._y + 8}" '
            'font-family="sans-serif" font-size="12">'
            f'<rect width="{WIDTH}" height="{self._y + 8}" fill="#ffffff"/>'
        )
        return head + "\n".join(self._parts) + "</svg>\n"


@click.command()
@click.argument("trace", type=click.Path(path_type=Path, exists=True))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--device", required=True, help="Name of the device, as on its track.")
@click.option("--span", default=4.0, help="Milliseconds to draw.")
@click.option("--lanes", default=10, help="Lanes of each group.")
def main(trace: Path, out: Path, device: str, span: float, lanes: int) -> None:
    """Draw the busiest SPAN of one DEVICE of a TRACE as SVG."""
    tracks = load(trace)
    group = next(u for u, t in tracks.items() if t.name.split(" ")[0] == device)
    below: dict[str, list[Track]] = defaultdict(list)
    for track in tracks.values():
        parent = track.parent
        while parent in tracks and parent != group:
            parent = tracks[parent].parent
        if parent == group:
            below[track.name].append(track)
    begin = busiest(below["bios"], int(span * NS))
    picture = Picture(begin, int(span * NS))
    picture.heading(f"{tracks[group].name}: {span:g} ms")
    for name, found in below.items():
        if found[0].samples and "lost" not in name:
            picture.graph(found[0])
    picture.lanes("bios", below["bios"], lanes)
    picture.lanes("requests", below["requests"], lanes)
    out.write_text(picture.svg())


if __name__ == "__main__":
    main()

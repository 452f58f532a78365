# SPDX-License-Identifier: Apache-2.0
"""The files of one rotated recording as one source of events; an indexed one, if they are."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from biotrail.converters.events.events import Events
from biotrail.converters.inputs.log import Indexed, Part, Source
from biotrail.recorder.schema.errors import LogFormatError


class SeriesSource:
    """The files of one rotated recording as a Source, in the order of their numbers.

    The header is the first file's; devices in later headers become `devices` notes. A missing
    file between two others becomes a window of `damaged` and a problem.
    """

    def __init__(self, sources: Sequence[tuple[str, Source]]) -> None:
        """sources: (name, source) of each file. Raises LogFormatError: of two recordings."""
        files = sorted(sources, key=lambda file: _number(file[1]))
        self.paths = [name for name, _ in files]
        self.sources = [source for _, source in files]
        self.name = self.paths[0]
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.losses: list[dict[str, Any]] = []
        self.damaged: list[dict[str, int]] = []
        self.unknown: Counter[int] = Counter()
        self.unreadable_bytes = 0
        self._missing: list[str] = []
        for (name, source), (other, behind) in pairwise(files):
            if run_of(source) is None or run_of(source) != run_of(behind):
                raise LogFormatError(
                    f"{name} and {other} are of two recordings, and an archive holds one: give -o "
                    "a directory, or archive them one by one"
                )
            if _number(source) == _number(behind):
                raise LogFormatError(
                    f"{name} and {other} are the same part (number {_number(source)}) of one "
                    "recording: give each once"
                )
        self.header = dict(self.sources[0].header)
        if len(files) > 1:
            self.header["series"] = {**self.header["series"], "last": _number(self.sources[-1])}
        self._copied = [[0, 0, 0] for _ in files]
        self._copy_findings(0)

    @property
    def size(self) -> int:
        sizes = [source.size for source in self.sources]
        return -1 if -1 in sizes else sum(sizes)

    @property
    def problems(self) -> list[str]:
        if len(self.sources) == 1:
            return self.sources[0].problems
        named = zip(self.paths, self.sources, strict=True)
        return self._missing + [f"{name}: {text}" for name, of in named for text in of.problems]

    @property
    def remarks(self) -> list[str]:
        return [text for source in self.sources for text in source.remarks]

    @property
    def end(self) -> dict[str, Any] | None:
        """The last file's end frame; None if it has none.

        If the files begin with the recording's first, the keys of its `run`, totals of the whole
        recording, replace those of the last file alone.
        """
        end = self.sources[-1].end
        if end is None or len(self.sources) == 1 or _number(self.sources[0]) != 1:
            return end
        return {**end, **end.get("run", {})}

    @property
    def interrupted(self) -> bool:
        return any(source.interrupted for source in self.sources)

    def parts(self) -> Iterator[Part]:
        """Yield the chunks of all files; `offset` counts through all. Can be called once."""
        done = complete_to = 0
        for index, source in enumerate(self.sources):
            self._begin_file(index, complete_to)
            for part in self._of_file(index, source.parts(), done):
                complete_to = max(complete_to, part.complete_to)
                yield part
            done += max(0, source.size)

    def _of_file(self, index: int, parts: Iterator[Part], done: int) -> Iterator[Part]:
        source = self.sources[index]
        for part in parts:
            self._copy_findings(index)
            part.offset += done
            yield part
        self._copy_findings(index)
        self.unknown += source.unknown
        self.unreadable_bytes += source.unreadable_bytes

    def _begin_file(self, index: int, complete_to: int) -> None:
        """Take in what a file has found; add a later one's devices, and report files before it.

        complete_to: ns, up to which events of earlier files were read: a gap in the numbers is a
        damaged window from there to the clock reading in the file's header.
        """
        name, source = self.paths[index], self.sources[index]
        if index and (devices := source.header.get("devices")):
            self.notes.append(("devices", {"devices": devices}))
        before, number = _number(self.sources[index - 1]), _number(source)
        if index and number > before + 1:
            start = int(source.header.get("clocks", {}).get("monotonic", complete_to))
            self.damaged.append({"offset": 0, "start": complete_to, "end": max(start, complete_to)})
            which = f"files {before + 1} to {number - 1}"
            if number == before + 2:
                which = f"file {before + 1}"
            self._missing.append(f"{which} of the recording, before {name}, not given: left out")
        self._copy_findings(index)

    def _copy_findings(self, index: int) -> None:
        source, taken = self.sources[index], self._copied[index]
        self.notes += source.notes[taken[0] :]
        self.losses += source.losses[taken[1] :]
        self.damaged += source.damaged[taken[2] :]
        self._copied[index] = [len(source.notes), len(source.losses), len(source.damaged)]


def run_of(source: Source) -> str | None:
    """Return the id of the recording that a rotated file belongs to; None for a single log."""
    series = source.header.get("series")
    return str(series["run"]) if series and "run" in series else None


def _number(source: Source) -> int:
    """Return a file's number in its recording, from 1; 0 if its header has none."""
    number = source.header.get("series", {}).get("number", 0)
    return number if isinstance(number, int) else 0


def series_of(sources: Sequence[tuple[str, Source]]) -> SeriesSource:
    """Return files (name, source) of one recording as one source. Raises LogFormatError."""
    if all(isinstance(source, Indexed) for _, source in sources):
        return IndexedSeries(sources)
    return SeriesSource(sources)


class IndexedSeries(SeriesSource):
    """A SeriesSource that is `Indexed`: files outside the time asked for are not read."""

    @property
    def _indexed(self) -> list[Indexed]:
        return [source for source in self.sources if isinstance(source, Indexed)]

    @property
    def parts_read(self) -> int:
        return sum(source.parts_read for source in self._indexed)

    @property
    def parts_searched(self) -> int:
        return sum(source.parts_searched for source in self._indexed)

    @property
    def parts_total(self) -> int:
        totals = [source.parts_total for source in self._indexed]
        return -1 if -1 in totals else sum(totals)

    def bounds(self) -> tuple[int, int] | None:
        found = [bounds for source in self._indexed if (bounds := source.bounds()) is not None]
        if len(found) < len(self.sources):
            return None
        return min(first for first, _ in found), max(last for _, last in found)

    def clock_near(self, ns: int) -> dict[str, int] | None:
        """Return clock readings (name → ns) near `ns`, of the first file that has any."""
        for source in self._indexed:
            bounds = source.bounds()
            if bounds is None or bounds[1] < ns:
                continue
            if (near := source.clock_near(ns)) is not None:
                return near
        return None

    def names_before(self, ns: int) -> Events:
        """Return the events with names of threads and files before `ns` (ns), sorted by time."""
        known = [(source, source.bounds()) for source in self._indexed]
        return Events.join([s.names_before(ns) for s, at in known if at is not None and at[0] < ns])

    def parts_between(self, begin: int, end: int) -> Iterator[Part]:
        """As of Indexed; devices of files outside are noted, and missing files reported."""
        complete_to = done = 0
        for index, source in enumerate(self._indexed):
            self._begin_file(index, complete_to)
            bounds = source.bounds()
            if bounds is not None and bounds[0] < end and bounds[1] >= begin:
                yield from self._of_file(index, source.parts_between(begin, end), done)
            complete_to = max(complete_to, bounds[1] if bounds is not None else 0)
            done += max(0, self.sources[index].size)

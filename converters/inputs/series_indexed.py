# SPDX-License-Identifier: Apache-2.0
"""The files of a rotated recording as an indexed source: a part can be read without the rest."""

from collections.abc import Iterator, Sequence

from biotrail.converters.events.events import Events
from biotrail.converters.inputs.log import Indexed, Part, Source
from biotrail.converters.inputs.series import SeriesSource


def series_of(sources: Sequence[tuple[str, Source]]) -> SeriesSource:
    """Return the files of one recording as one source, an IndexedSeries if all files are Indexed.

    sources: (name, source) of each file, in any order. Raises LogFormatError: files of several
    recordings, or the same file twice.
    """
    if all(isinstance(source, Indexed) for _, source in sources):
        return IndexedSeries(sources)
    return SeriesSource(sources)


class IndexedSeries(SeriesSource):
    """A SeriesSource that is `Indexed`: files outside the time asked for are not read."""

    @property
    def _indexed(self) -> list[Indexed]:
        """All files, in the order of their numbers, typed as Indexed."""
        return [source for source in self.sources if isinstance(source, Indexed)]

    @property
    def parts_read(self) -> int:
        """Number of parts decoded so far, of all files."""
        return sum(source.parts_read for source in self._indexed)

    @property
    def parts_searched(self) -> int:
        """Number of further parts read for names only, of all files."""
        return sum(source.parts_searched for source in self._indexed)

    @property
    def parts_total(self) -> int:
        """Number of parts of all files; -1 if one file's is unknown."""
        totals = [source.parts_total for source in self._indexed]
        return -1 if -1 in totals else sum(totals)

    def bounds(self) -> tuple[int, int] | None:
        """Return the (first, last) time (ns) over all files; None if one file has no bounds."""
        found = [bounds for source in self._indexed if (bounds := source.bounds()) is not None]
        if len(found) < len(self.sources):
            return None
        return min(first for first, _ in found), max(last for _, last in found)

    def clock_near(self, ns: int) -> dict[str, int] | None:
        """Return clock readings (name → ns) near `ns`, of the first file that has any.

        Files that end before `ns`, or whose bounds are not known, are passed over. None if no other
        file has a reading.
        """
        for source in self._indexed:
            bounds = source.bounds()
            if bounds is None or bounds[1] < ns:
                continue
            if (near := source.clock_near(ns)) is not None:
                return near
        return None

    def names_before(self, ns: int) -> Events:
        """Return the events with names of threads and files before `ns` (ns), sorted by time.

        Of every file that begins before `ns`; files whose bounds are not known are passed over. At
        equal times the earlier file's come first.
        """
        found = []
        for source in self._indexed:
            bounds = source.bounds()
            if bounds is not None and bounds[0] < ns:
                found.append(source.names_before(ns))
        return Events.join(found)

    def parts_between(self, begin: int, end: int) -> Iterator[Part]:
        """Yield the chunks that overlap begin <= ts < end (ns), file by file; can be called once.

        Files outside that time, or whose bounds are not known, are not read, but the devices in
        their headers are noted, and missing files reported. As `parts` does, adds what the files
        have found (notes, losses, damaged; of files read unknown and unreadable_bytes) to the
        series, and `offset` counts through all files.
        """
        complete_to = done = 0
        for index, source in enumerate(self._indexed):
            if index:
                self._begin_file(index, complete_to)
            self._copy_findings(index)
            bounds = source.bounds()
            if bounds is not None and bounds[0] < end and bounds[1] >= begin:
                for part in source.parts_between(begin, end):
                    self._copy_findings(index)
                    part.offset += done
                    yield part
                self._copy_findings(index)
                self.unknown += self.sources[index].unknown
                self.unreadable_bytes += self.sources[index].unreadable_bytes
            complete_to = max(complete_to, bounds[1] if bounds is not None else 0)
            done += max(0, self.sources[index].size)

# SPDX-License-Identifier: Apache-2.0
"""The files of a rotated recording of which a part can be read without the rest."""

from collections.abc import Iterator, Sequence

from biotrail.converters.events.events import Events
from biotrail.converters.inputs.log import Indexed, Part, Source
from biotrail.converters.inputs.series import SeriesSource


def series_of(sources: Sequence[tuple[str, Source]]) -> SeriesSource:
    """Return the files of one recording as one source, an indexed one where each file is.

    sources: (name, source) of each file. Raises LogFormatError: not of one recording.
    """
    if all(isinstance(source, Indexed) for _, source in sources):
        return IndexedSeries(sources)
    return SeriesSource(sources)


class IndexedSeries(SeriesSource):
    """A SeriesSource that is `Indexed`: files outside of a time are not read."""

    @property
    def _indexed(self) -> list[Indexed]:
        return [source for source in self.sources if isinstance(source, Indexed)]

    @property
    def parts_read(self) -> int:
        """Of all files."""
        return sum(source.parts_read for source in self._indexed)

    @property
    def parts_searched(self) -> int:
        """Of all files."""
        return sum(source.parts_searched for source in self._indexed)

    @property
    def parts_total(self) -> int:
        """Of all files; -1 where one does not say."""
        totals = [source.parts_total for source in self._indexed]
        return -1 if -1 in totals else sum(totals)

    def bounds(self) -> tuple[int, int] | None:
        """From the first file's beginning to the last one's end, ns."""
        found = [bounds for source in self._indexed if (bounds := source.bounds()) is not None]
        if len(found) < len(self.sources):
            return None
        return min(first for first, _ in found), max(last for _, last in found)

    def clock_near(self, ns: int) -> dict[str, int] | None:
        """The reading of the first file that has one from then or later."""
        for source in self._indexed:
            bounds = source.bounds()
            if bounds is None or bounds[1] < ns:
                continue
            if (near := source.clock_near(ns)) is not None:
                return near
        return None

    def names_before(self, ns: int) -> Events:
        """Those of every file that begins before that time."""
        found = []
        for source in self._indexed:
            bounds = source.bounds()
            if bounds is not None and bounds[0] < ns:
                found.append(source.names_before(ns))
        return Events.join(found)

    def parts_between(self, begin: int, end: int) -> Iterator[Part]:
        """The chunks of that time, of the files that have any."""
        complete_to = done = 0
        for index, source in enumerate(self._indexed):
            if index:
                self._begin(index, complete_to)
            self._learn(index)
            bounds = source.bounds()
            if bounds is not None and bounds[0] < end and bounds[1] >= begin:
                for part in source.parts_between(begin, end):
                    self._learn(index)
                    part.offset += done
                    yield part
                self._learn(index)
                self.unknown += self.sources[index].unknown
                self.unreadable_bytes += self.sources[index].unreadable_bytes
            complete_to = max(complete_to, bounds[1] if bounds is not None else 0)
            done += max(0, self.sources[index].size)

# SPDX-License-Identifier: Apache-2.0
"""Format lines of a histogram, as bcc's print_log2_hist does. Imports nothing of biotrail."""

from dataclasses import dataclass

STARS = 40
NARROW = 1 << 32
"""From this value on a histogram has bcc's wider columns, and bars of half the length."""


@dataclass(frozen=True)
class Bars:
    """Formats the lines of one histogram. most: the largest count, not 0."""

    most: int
    maximum: int
    """The largest value, in the histogram's unit: it decides how wide the columns are."""

    @property
    def _digits(self) -> int:
        return 20 if self.maximum >= NARROW else 10

    def heading(self, unit: str) -> str:
        return f"{'':{self._digits - 5}}{unit:<{self._digits + 9}} : count     distribution"

    def gap(self) -> str:
        return f"{'...':>{self._digits}}"

    def row(self, first: int, last: int | None, count: int) -> str:
        """Return a bucket's line. first, last: its bounds, both within; None: there is no end."""
        digits, stars = self._digits, STARS // 2 if self.maximum >= NARROW else STARS
        bar = "*" * (stars * count // self.most)
        end = "and more" if last is None else last
        return f"{first:>{digits}} -> {end:<{digits}} : {count:<8} |{bar:<{stars}}|"

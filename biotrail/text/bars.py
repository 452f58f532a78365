# SPDX-License-Identifier: Apache-2.0
"""Format lines of a histogram, as bcc's print_log2_hist does. Imports nothing of biotrail."""

from collections.abc import Iterator, Sequence

STARS = 40
NARROW = 1 << 32
"""From this value on a histogram has bcc's wider columns, and bars of half the length."""
Bucket = tuple[int, int | None, int]
"""The first and last value, both within (None: there is no end), and the count."""


def bucket_lines(unit: str, maximum: int, buckets: Sequence[Bucket | None]) -> Iterator[str]:
    """Yield a heading and a line per bucket, one at least of which has a count; None: a gap.

    maximum: the largest value, in the unit: it decides how wide the columns are.
    """
    digits, stars = (20, STARS // 2) if maximum >= NARROW else (10, STARS)
    most = max(bucket[2] for bucket in buckets if bucket is not None)
    yield f"{'':{digits - 5}}{unit:<{digits + 9}} : count     distribution"
    for bucket in buckets:
        if bucket is None:
            yield f"{'...':>{digits}}"
            continue
        first, last, count = bucket
        bar = "*" * (stars * count // most)
        end = "and more" if last is None else last
        yield f"{first:>{digits}} -> {end:<{digits}} : {count:<8} |{bar:<{stars}}|"

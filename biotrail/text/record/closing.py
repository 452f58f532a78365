# SPDX-License-Identifier: Apache-2.0
"""Lines that `record` prints when it ends. Imports only what recording needs."""

import glob
import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence

from biotrail.recorder.probes.sites.follow_options import FollowOptions
from biotrail.recorder.session.session import Summary
from biotrail.text import units

LOSSES = {
    "full": "births while --max objects were followed: these were not followed",
    "cut": "hits of long candidates had no room (--slower): their lives are marked",
    "unmatched": "calls whose return was not seen",
    "too_deep": "calls whose return could not be waited for: too many were open",
    "bad_reads": "births whose device or process could not be read",
}
"""What is said of counts, beside lives."""


def followed_lines(options: FollowOptions, counts: Mapping[str, int]) -> Iterator[str]:
    """Yield how many lives were followed, and what is missing. counts: struct bt_follow_counts."""
    lives = units.plural(counts.get("born", 0), "life", "lives")
    quick = counts.get("quick", 0)
    kept = f", {units.count(quick)} of them too quick to be recorded" if quick else ""
    yield f"followed {lives} of {options.struct}{kept}"
    for name, text in LOSSES.items():
        if counts.get(name):
            yield f"{units.count(counts[name])} {text}"


def until_text(command: Sequence[str], duration: float | None) -> str:
    if command:
        return f"while {command[0]} runs"
    return f"for {units.duration(duration * 1e9)}" if duration is not None else "until Ctrl-C"


_SUFFIX = ".biotrail"
_FEW = 3


def as_arguments(files: Sequence[str]) -> str:
    """Return shell words that name all files, oldest first, and no other file."""
    if len(files) > _FEW:
        # `d/NAME-` of `d/NAME-20261107T101530Z-000001.biotrail`.
        series = files[0].removesuffix(_SUFFIX).rsplit("-", 2)[0] + "-"
        shared = os.path.commonprefix(list(files))  # noqa: RUF071 - names, so by characters
        for prefix in (series, shared):
            if sorted(glob.glob(f"{glob.escape(prefix)}*{_SUFFIX}")) == sorted(files):
                return f"{_word(prefix)}*{_SUFFIX}"
    return " ".join(map(_word, files))


def _word(path: str) -> str:
    """Return a path quoted for the shell, which no command takes for an option."""
    return shlex.quote(f"./{path}" if path.startswith("-") else path)


def files_line(summary: Summary) -> str:
    files = summary.files
    kept = units.plural(len(files), "file") if files else "no file"
    others = (
        f", {units.count(summary.files_deleted)} older deleted" if summary.files_deleted else ""
    )
    if summary.files_gone:
        others += f", {units.count(summary.files_gone)} removed or moved away by others"
    which = ": " + " to ".join(dict.fromkeys((files[0], files[-1]))) if files else ""
    there = sum(os.stat(path).st_size for path in files if os.path.exists(path))
    size = f" ({units.size(there)})" if files else ""
    return f"{kept} kept{size}{others}{which}"


def unwritten_line(summary: Summary) -> str:
    """Return how much was recorded but could not be written, and until when the log is complete."""
    found = f"{units.size(summary.unwritten_bytes)} of records could not be written"
    if summary.unwritten_events:
        found += f", about {units.plural(summary.unwritten_events, 'event')}"
    if summary.written_until is None:
        return f"{found}: nothing was written"
    seconds, realtime = summary.written_until
    date = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(realtime // 10**9))
    parts = f"{realtime % 10**9 // 10**6:03d}"
    passed = units.duration(seconds * 1e9)
    return (
        f"{found}: what was recorded until {date}.{parts}Z ({passed} after the beginning) is there"
    )

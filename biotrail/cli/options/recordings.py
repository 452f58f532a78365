# SPDX-License-Identifier: Apache-2.0
"""The recordings that a command was given: rotated files are one; several have labels."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from biotrail.cli.options.opening import USUAL, Reading, open_log, opener
from biotrail.converters.inputs.beginning import is_url
from biotrail.converters.inputs.log import Source
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import ConversionError, LogFormatError
from biotrail.text import units, values
from biotrail.text.printing import say, say_all

if TYPE_CHECKING:
    from biotrail.converters.clocks.alignment import Alignment, Clocks
    from biotrail.converters.clocks.corridor import Line

LOG_ENDINGS = (".biotrail", ".parquet", ".pftrace", ".perfetto-trace")

logs_argument: Callable[[Any], Any] = click.argument(
    "logs", metavar="LOG...", nargs=-1, required=True, type=values.FileName()
)


@dataclass
class Recording:
    """An opened recording. `paths`: its files, in the order of their numbers in the run."""

    paths: list[str]
    trace: Trace

    @property
    def name(self) -> str:
        """The first file's name, without directory and ending."""
        return Path(self.paths[0]).stem


def open_recordings(logs: Sequence[str], reading: Reading = USUAL) -> list[Recording]:
    """Open logs, or the archives that URLs mean; return recordings by their first logs."""
    logs = meant(logs)
    if len(logs) == 1:
        return [Recording([logs[0]], reading.trace(open_log(logs[0])))]
    if "-" in logs:
        raise click.UsageError("- is one log from a pipe: save it to a file to read it with others")
    from biotrail.converters.inputs.series import run_of, series_of

    groups: dict[str, list[tuple[str, Source]]] = {}
    known: dict[str, str] = {}
    for log, source in [(log, open_source(log)) for log in logs]:
        log_id = str(source.header.get("log_id", Path(log).resolve()))
        if log_id in known:
            raise LogFormatError(f"{known[log_id]} and {log} are the same log: give each once")
        known[log_id] = log
        groups.setdefault(run_of(source) or log, []).append((log, source))
    found = []
    for files in groups.values():  # of one recording, given in any order
        paths, source = [files[0][0]], files[0][1]
        if len(files) > 1:
            source = series_of(files)
            paths = source.paths
        found.append(Recording(paths, reading.trace(source)))
    return found


def meant(logs: Sequence[str]) -> list[str]:
    """Return logs with URLs of folders, or with wildcards, replaced by their archives' URLs."""
    found: list[str] = []
    for log in logs:
        if not is_url(log):
            found.append(log)
            continue
        from biotrail.converters.inputs.parquet.locations import expand

        if not (inside := expand(log)):
            raise LogFormatError(f"{log}: no archive there; give another URL")
        found += inside
    return found


def without_log_ending(log: str) -> str:
    """Return the path without LOG_ENDINGS; of a URL the file's name alone."""
    if is_url(log):
        from biotrail.converters.inputs.parquet.locations import locate

        log = locate(log).path.rpartition("/")[2]
    for suffix in LOG_ENDINGS:
        log = log.rstrip("/").removesuffix(suffix)
    return log


Answer = TypeVar("Answer")
_HEAD = 80


@dataclass
class InputRecording:
    label: str
    """Distinguishes the recording from the others (host, …); empty if there are no others."""
    paths: list[str]
    again: Callable[[], Trace]
    """Opens the trace from its beginning. Standard input can be opened only once unless
    `recordings` was called with `twice`."""

    @property
    def name(self) -> str:
        """The log's path as the user gave it; of several files: `PATH and 2 more files`."""
        more = len(self.paths) - 1
        return self.paths[0] + (f" and {units.plural(more, 'more file')}" if more else "")

    @property
    def title(self) -> str:
        return f"{self.label}: {self.name}"

    @property
    def file_name(self) -> str:
        return "standard input" if self.paths == ["-"] else Path(self.name).name

    def about(self, lines: Iterable[str]) -> list[str]:
        """Return lines on the recording, behind its label if it has one."""
        return [f"{self.label}: {line}" if self.label else line for line in lines]


@contextmanager
def recordings(
    logs: Sequence[str], reading: Reading = USUAL, *, twice: bool = False
) -> Iterator[list[InputRecording]]:
    """Yield the recordings in the logs. twice: whether `again` is called more than once."""
    logs = meant(logs)
    if len(logs) == 1:
        with opener(logs[0], reading, twice=twice) as again:
            yield [InputRecording("", list(logs), again)]
    else:
        found = open_recordings(logs, reading)
        labels = [""]
        if len(found) > 1:  # hosts, with boots and file names where needed (docs/hosts.md)
            from biotrail.converters.outputs.perfetto.place import Named, places

            named = []
            for one in found:
                context = one.trace.context
                boot = str(context.header.get("host", {}).get("boot_id", ""))
                named.append(Named(context.log_id, context.host, boot, one.name, aligned=False))
            labels = [place.host for place in places(named)]
        yield [
            InputRecording(label, one.paths, _again(one, reading))
            for label, one in zip(labels, found, strict=True)
        ]


def _again(one: Recording, reading: Reading) -> Callable[[], Trace]:
    """Return a function that returns `one.trace` the first time, then opens the recording anew."""
    unread = [one.trace]

    def again() -> Trace:
        if unread:
            return unread.pop()
        return open_recordings(one.paths, reading)[0].trace

    return again


def of_each(
    found: Sequence[InputRecording], answer: Callable[[InputRecording], Answer]
) -> list[tuple[InputRecording, Answer]]:
    """Call `answer` for each recording and return pairs (recording, answer).

    Of several, those with a ConversionError (no such device or time) are left out, unless all are.
    """
    if len(found) == 1:
        return [(found[0], answer(found[0]))]
    answers: list[tuple[InputRecording, Answer]] = []
    refused: list[tuple[InputRecording, ConversionError]] = []
    for one in found:
        try:
            answers.append((one, answer(one)))
        except ConversionError as error:
            refused.append((one, error))
    if not answers:
        raise refused[0][1]
    for one, why in refused:
        say(f"biotrail: {one.title}: left out: {why}", err=True)
    return answers


def headed(answers: Sequence[tuple[InputRecording, Answer]]) -> Iterator[Answer]:
    """Yield each recording's answer, for its part of the output, below the part's heading."""
    for number, (one, answer) in enumerate(answers):
        heading = [f"{one.title} ──".ljust(_HEAD, "─")] if one.label else []
        say_all([*([""] if number else []), *heading])
        yield answer


def as_one_object(
    answers: Sequence[tuple[InputRecording, dict[str, Any]]], **about: Any
) -> dict[str, Any]:
    """Return all facts for JSON: of several recordings as a list, even if one answered."""
    if not answers[0][0].label:
        return {**about, **answers[0][1]}
    return {**about, "recordings": [marked(one, facts) for one, facts in answers]}


def marked(one: InputRecording, facts: dict[str, Any]) -> dict[str, Any]:
    return {"recording": one.label, "logs": one.paths, **facts}


@dataclass
class AlignedRecording:
    """One of several recordings, with its position on the common timeline."""

    label: str
    clocks: "Clocks"
    alignment: "Alignment"
    reference: bool
    """Whether the common timeline is that of this recording."""


def align_recordings(
    found: Sequence[InputRecording], line: "Line | None" = None
) -> list[AlignedRecording]:
    """Align the recordings on CLOCK_BOOTTIME of one of the hosts (docs/hosts.md).

    line: the second one's clock, which is the timeline then, by the first one's requests. Empty if
    there is one recording alone, or any has no clock readings.
    """
    if len(found) < 2:
        return []
    from biotrail.converters.clocks.alignment import Clocks

    try:
        clocks = [Clocks.from_trace(one.paths[0], one.again()) for one in found]
    except ConversionError:
        return []
    return [
        AlignedRecording(one.label, own, how or own.align_to(own), how is None)
        for one, own, how in zip(found, clocks, alignments(clocks, line), strict=True)
    ]


def alignments(clocks: "Sequence[Clocks]", line: "Line | None" = None) -> "list[Alignment | None]":
    """Return how each recording is aligned with the one whose clock is the timeline: None there."""
    from biotrail.converters.clocks.alignment import ByRequests, choose_reference

    if line is not None:
        return [ByRequests.on(clocks[1], line), None]
    first = choose_reference(clocks)
    return [
        None if place == first else own.align_to(clocks[first]) for place, own in enumerate(clocks)
    ]


def names_beside(target: str, found: Sequence[InputRecording]) -> list[str]:
    """Return a distinct output path for each recording: of one labelled db1 `all-db1.html`."""
    path = Path(target)
    names: list[str] = []
    for one in found:
        word = "".join(c if c.isalnum() or c in "._-" else "-" for c in one.label)
        name = f"{path.stem}-{word}" if word else path.stem
        while (beside := str(path.with_name(name + path.suffix))) in names:
            name += "-2"
        names.append(beside if word else target)
    return names

# SPDX-License-Identifier: Apache-2.0
"""The recordings that a command was given, one or several, each to be answered for by itself."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from biotrail.cli.options.cuts import Cut, Opened, cut_of
from biotrail.cli.options.opening import open_again, open_trace, readable_twice
from biotrail.cli.options.recordings import Recording, open_recordings
from biotrail.converters.clocks.alignment import Alignment, Clocks, choose_reference
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import ConversionError
from biotrail.text import units
from biotrail.text.printing import say

Answer = TypeVar("Answer")
_HEAD = 80
"""Characters of a line that stands above a recording's part."""


@dataclass
class Given:
    """One recording. `label`: what tells it from the others, empty where it is the only one."""

    label: str
    paths: list[str]
    again: Callable[[], Trace]
    """Opens its trace from the beginning; of standard input once, unless `twice` was said."""

    @property
    def name(self) -> str:
        """Its file's name, as the user gave it; of several the first one's, and how many more."""
        more = len(self.paths) - 1
        return self.paths[0] + (f" and {units.plural(more, 'more file')}" if more else "")

    @property
    def title(self) -> str:
        """`db1: a.biotrail`: the head of what is said of it among others."""
        return f"{self.label}: {self.name}"

    def head(self) -> list[str]:
        """What is printed before its part of an output: a line, where it is one of several."""
        return [f"{self.title} ──".ljust(_HEAD, "─")] if self.label else []

    def marked(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Its facts for JSON, with what tells it from the others."""
        return {"recording": self.label, "logs": self.paths, **facts}

    def opened(self, cut: Cut) -> Opened:
        """Its trace, cut. Raises ConversionError: the cut is nowhere in it."""
        return cut_of(self.again, cut)


@contextmanager
def recordings(
    logs: Sequence[str], associate: str = "auto", own_io: bool = False, *, twice: bool = False
) -> Iterator[list[Given]]:
    """The recordings in the logs, in the order in which each was first named.

    twice: whether `again` is called more than once. Raises LogFormatError, click.UsageError.
    """
    if len(logs) == 1 and twice:
        with readable_twice(logs[0]) as source:
            yield [Given("", list(logs), lambda: open_again(source, associate, own_io))]
    elif len(logs) == 1:
        yield [Given("", list(logs), lambda: open_trace(logs[0], associate, own_io))]
    else:
        found = open_recordings(logs, associate, own_io)
        labels = labels_of(found) if len(found) > 1 else [""]
        yield [
            Given(label, one.paths, _again(one, associate, own_io))
            for label, one in zip(labels, found, strict=True)
        ]


def _again(one: Recording, associate: str, own_io: bool) -> Callable[[], Trace]:
    unread = [one.trace]

    def again() -> Trace:
        if unread:
            return unread.pop()
        return open_recordings(one.paths, associate, own_io)[0].trace

    return again


def labels_of(found: Sequence[Recording]) -> list[str]:
    """Return each one's host; with its boot and its file's name where hosts or boots are the same.

    They are those of `biotrail convert` (docs/hosts.md).
    """
    from biotrail.converters.outputs.perfetto.merged import Named, places

    named = []
    for one in found:
        context = one.trace.context
        boot = str(context.header.get("host", {}).get("boot_id", ""))
        named.append(Named(context.log_id, context.host, boot, one.name, aligned=False))
    return [place.host for place in places(named)]


def of_each(
    found: Sequence[Given], answer: Callable[[Given], Answer]
) -> list[tuple[Given, Answer]]:
    """Return the answer of each recording.

    One of several that has none, for want of the device or the time that was chosen, is left
    out, which standard error says. Raises ConversionError: none has one.
    """
    if len(found) == 1:
        return [(found[0], answer(found[0]))]
    answers: list[tuple[Given, Answer]] = []
    refused: list[tuple[Given, ConversionError]] = []
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


@dataclass
class Lined:
    """A recording on the timeline of one of several."""

    label: str
    clocks: Clocks
    alignment: Alignment
    reference: bool
    """Whether the timeline is its own."""

    def learn(self, trace: Trace) -> None:
        """Hold its clocks against all readings of the trace, which was read to its end."""
        self.clocks.learn(trace.context.clocks)


def lined_up(found: Sequence[Given]) -> list[Lined]:
    """Return the recordings on one timeline (BOOTTIME of one's machine, docs/hosts.md), in order.

    Empty: it is one alone, or one has no reading of the clocks.
    """
    if len(found) < 2:
        return []
    try:
        clocks = [Clocks.of(one.paths[0], one.again()) for one in found]
    except ConversionError:
        return []
    first = choose_reference(clocks)
    return [
        Lined(one.label, own, own.onto(clocks[first]), place == first)
        for place, (one, own) in enumerate(zip(found, clocks, strict=True))
    ]


def timeline_lines(lined: Sequence[Lined]) -> list[str]:
    """How they were lined up, in sentences."""
    from biotrail.text.alignment import alignment_lines

    if not lined:
        return []
    logs = [(one.label, one.clocks, None if one.reference else one.alignment) for one in lined]
    return alignment_lines(logs)


def names_beside(target: str, found: Sequence[Given]) -> list[str]:
    """Return the output's name for each recording: `all.html`; of several, db1: `all-db1.html`."""
    path = Path(target)
    names: list[str] = []
    for one in found:
        word = "".join(c if c.isalnum() or c in "._-" else "-" for c in one.label)
        name = f"{path.stem}-{word}" if word else path.stem
        while (beside := str(path.with_name(name + path.suffix))) in names:
            name += "-2"
        names.append(beside if word else target)
    return names

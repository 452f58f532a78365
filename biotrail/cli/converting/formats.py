# SPDX-License-Identifier: Apache-2.0
"""Formats of `biotrail convert`, and the format and path that an output gets."""

import sys
from dataclasses import replace
from pathlib import Path

import click

from biotrail.cli.options import compressing
from biotrail.cli.options.cuts import Cut
from biotrail.cli.options.drawing import LEAST_PART, Drawing
from biotrail.cli.options.moments import Times
from biotrail.cli.options.recordings import without_log_ending
from biotrail.converters.outputs.perfetto.names import Colour, Detail
from biotrail.text import units

PERFETTO, OTF2, BLKTRACE = "perfetto", "otf2", "blktrace"
ENDINGS = {
    ".pftrace": PERFETTO,
    ".perfetto-trace": PERFETTO,
    ".otf2": OTF2,
    ".blktrace": BLKTRACE,
}
SUFFIX = {PERFETTO: ".pftrace", OTF2: ".otf2", BLKTRACE: ".blktrace"}


def checked(
    log: str, target: str | None, form: str | None, cut: Cut, drawing: Drawing
) -> tuple[str, str]:
    """Return (format, output path) as `format_and_path` does.

    Raises click.UsageError also if the format does not support `cut` or `drawing`.
    """
    form, target = format_and_path(log, target, form)
    check_drawing(form, target, drawing)
    if form == BLKTRACE:
        check_records(cut)
    return form, target


def format_and_path(log: str, target: str | None, form: str | None) -> tuple[str, str]:
    """Return (format, output path; `-` is standard output) from -o and --format.

    log: the path from which the output's default name is made. target, form: the options'
    values, None if not given. Raises click.UsageError.
    """
    if target is None:
        if log == "-":
            raise click.UsageError("a log from standard input needs -o OUT")
        form = form or PERFETTO
        stem = without_log_ending(log)
        made = stem + SUFFIX[form]
        return form, made if made != log else f"{stem}-bios{SUFFIX[form]}"
    if target == "-":
        if form in (OTF2, BLKTRACE):
            raise click.UsageError(f"{form} output is a directory: give -o OUT")
        if sys.stdout.isatty():
            raise click.UsageError("-o - writes a binary trace: send it to a file or a pipe")
        return PERFETTO, target
    plain = compressing.plain(target)
    ending = Path(plain).suffix
    if target.endswith("/") and ending not in ENDINGS:
        return form or OTF2, target
    if form is None and ending not in ENDINGS:
        known = ", ".join(ENDINGS)
        raise click.UsageError(
            f"the ending of {target} names no format ({known}): give --format as well"
        )
    form = form or ENDINGS[ending]
    if form != PERFETTO and compressing.plain(target) != target:
        raise click.UsageError(f"{form} output is a directory, which {target} cannot be")
    return form, target


def check_drawing(form: str, target: str, drawing: Drawing) -> None:
    """Raise click.UsageError if the output cannot be written as `drawing` says.

    Detail, colours and a size of parts are for Perfetto traces alone; parts are for files, and
    no smaller than LEAST_PART. form, target: from `format_and_path`.
    """
    if form != PERFETTO and drawing.detail != Detail.STANDARD:
        raise click.UsageError("--detail is for Perfetto traces")
    if form != PERFETTO and drawing.colour != Colour.AUTO:
        raise click.UsageError("--colour is for Perfetto traces")
    if form != PERFETTO and (drawing.flows or drawing.all_calls or drawing.ftrace):
        raise click.UsageError("--flows, --all-calls and --ftrace are for Perfetto traces")
    if drawing.ftrace and not drawing.detail.requests:
        raise click.UsageError(f"--ftrace is of requests, which --detail {drawing.detail} has not")
    max_size = drawing.max_size
    if max_size is None:
        return
    if form != PERFETTO or target == "-":
        raise click.UsageError("--max-size is for Perfetto traces that are written to files")
    if max_size < LEAST_PART:
        raise click.UsageError(f"--max-size must be at least {units.size(LEAST_PART)}")


def check_beside(form: str, beside: str, drawing: Drawing) -> None:
    """Raise click.UsageError if the output cannot hold another trace, given by its path, as well.

    It goes into one Perfetto trace, and is read twice.
    """
    if form != PERFETTO:
        raise click.UsageError("--with is for Perfetto traces")
    if drawing.max_size is not None:
        raise click.UsageError("--with writes one file: leave --max-size out")
    if beside == "-":
        raise click.UsageError("--with reads its trace twice, so it cannot be a pipe: give a file")


def check_records(cut: Cut) -> None:
    """Raise click.UsageError if `cut` chooses by more than time.

    Files for blktrace's tools hold the records of whole devices.
    """
    if replace(cut, times=Times()) != Cut():
        raise click.UsageError(
            "files for blkparse hold records, of whole devices: only --from, --to and --around "
            "choose among these"
        )

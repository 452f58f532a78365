# SPDX-License-Identifier: Apache-2.0
"""The option --labels: names of files for people."""

import csv
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from biotrail.converters.events.labels import Labels
from biotrail.recorder.schema.errors import ConversionError

if TYPE_CHECKING:  # generic in click 8.2 and later only
    _Base = click.ParamType[Labels]
else:
    _Base = click.ParamType


class LabelsFile(_Base):
    """The type of an option whose value is a CSV file of patterns and labels."""

    name = "labels"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Labels:
        """Return the labels in a file. Raises ConversionError."""
        return value if isinstance(value, Labels) else read_labels(str(value))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Have the shell complete a file's name."""
        return [CompletionItem(incomplete, type="file")]


def read_labels(path: str) -> Labels:
    """Return the labels in a CSV file with a pattern and a label in each line.

    Empty lines are skipped. Raises ConversionError: it cannot be read, or a line has not these two.
    """
    pairs: list[tuple[str, str]] = []
    try:
        with open(path, newline="", encoding="utf-8-sig") as stream:
            lines = csv.reader(stream)
            for line in lines:
                cells = [cell.strip() for cell in line]
                if not any(cells):
                    continue
                if len(cells) != 2 or not all(cells):
                    raise ConversionError(
                        f"{path}:{lines.line_num}: a line of labels has a pattern of paths, a "
                        f"comma and a label; this one has {line!r}"
                    )
                pairs.append((cells[0], cells[1]))
    except (OSError, UnicodeError, csv.Error) as error:
        what = getattr(error, "strerror", None) or error
        raise ConversionError(f"{path}: the labels cannot be read: {what}") from error
    return Labels(pairs)

# SPDX-License-Identifier: Apache-2.0
"""The user's table of hosts: what recordings do not know, such as the rack."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass, field

from biotrail.recorder.schema.errors import ConversionError

HOST = "host"
"""Column with the hosts' names."""


@dataclass(frozen=True)
class HostsTable:
    """Columns of the table, but HOST, and their values by host."""

    columns: tuple[str, ...] = ()
    rows: dict[str, dict[str, str]] = field(default_factory=dict)

    def of(self, host: str) -> dict[str, str]:
        """Return column → value of a host; a host that is not in the table has none."""
        return self.rows.get(host, {})


def read_table(path: str) -> HostsTable:
    """Return the table in a CSV file, whose first line names its columns.

    Raises ConversionError: it cannot be read, or has no column HOST, or a host twice.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as stream:
            return _table(path, csv.reader(stream))
    except (OSError, UnicodeError, csv.Error) as error:
        what = getattr(error, "strerror", None) or error
        raise ConversionError(f"{path}: the table of hosts cannot be read: {what}") from error


def _table(path: str, lines: Iterable[list[str]]) -> HostsTable:
    """Return the table of the lines. Raises ConversionError."""
    rows: dict[str, dict[str, str]] = {}
    names: list[str] = []
    for number, line in enumerate(lines, 1):
        if not any(cell.strip() for cell in line):
            continue
        if not names:
            names = [cell.strip() for cell in line]
            if HOST not in names:
                raise ConversionError(
                    f"{path}: the first line must name the columns, one of them {HOST!r}; it has "
                    f"{', '.join(map(repr, names))}"
                )
            continue
        row = dict(zip(names, (cell.strip() for cell in line), strict=False))
        host = row.pop(HOST, "")
        if host in rows:
            raise ConversionError(f"{path}:{number}: the host {host!r} is in the table twice")
        rows[host] = row
    return HostsTable(tuple(name for name in names if name != HOST), rows)

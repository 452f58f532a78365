# SPDX-License-Identifier: Apache-2.0
"""Tracepoints' formats, as recordings of other tools contain them, as numpy dtypes."""

import re
from typing import Literal

import numpy as np

from biotrail.recorder.schema.errors import LogFormatError, ProbeError
from biotrail.recorder.schema.formats import Field, Format, parse

_NAME = re.compile(r"^name:\s*(\S+)\s*$", re.MULTILINE)
_MOST_RECORD_BYTES = 1 << 16


def parse_format(text: str, where: str) -> Format:
    """Return the format in `text`, the content of tracefs's `events/SYSTEM/NAME/format`.

    where: the recording, for messages. Raises LogFormatError: no name, no ID, no field, or a record
    of more than 64 KiB, which no tracepoint has.
    """
    name = _NAME.search(text)
    try:
        found = parse(name[1] if name else "?", text)
    except ProbeError as error:
        raise LogFormatError(f"{where}: {error}") from error
    if name is None or found.size > _MOST_RECORD_BYTES:
        raise LogFormatError(
            f"{where}: an event's format has no name, or impossible sizes: it begins with "
            f"{text[:40]!r}; the file is damaged"
        )
    return found


def record_dtype(form: Format, order: Literal["<", ">"]) -> np.dtype[np.void]:
    """Return a structured dtype of the event's record: a member per integer and text field.

    order: byte order of the recording. The members have the format's names, offsets, sizes and
    signedness, the common fields (common_pid, …) too; the item size is the record's without what
    varies in length. Left out are fields whose value lies elsewhere (`__data_loc`), arrays of
    numbers, and members of other sizes than 1, 2, 4 and 8 bytes. Records of an event then are read
    as columns: `np.frombuffer(data, dtype)["sector"]`.
    """
    kept = {name: kind for name, f in form.fields.items() if (kind := _member(f, order))}
    return np.dtype(
        {
            "names": list(kept),
            "formats": list(kept.values()),
            "offsets": [form.fields[name].offset for name in kept],
            "itemsize": form.size,
        }
    )


def _member(field: Field, order: str) -> str | None:
    if field.is_located or not field.size:
        return None
    if field.elements:
        return f"S{field.size}" if field.type.split()[-1:] == ["char"] else None
    if field.size not in (1, 2, 4, 8):
        return None
    return f"{order}{'i' if field.signed else 'u'}{field.size}"

# SPDX-License-Identifier: Apache-2.0
"""Parses tracepoints' format files, which describe their records: `events/SYSTEM/NAME/format`."""

import re
from dataclasses import dataclass

from biotrail.recorder.schema.errors import ProbeError

_FIELD = re.compile(
    r"\s*field:(?P<declaration>[^;]+);\s*offset:(?P<offset>\d{1,6});\s*size:(?P<size>\d{1,6});"
    r"\s*signed:(?P<signed>[01]);"
)
_ELEMENTS = re.compile(r"\[([^\]]*)\]")
_LOCATED = ("__data_loc", "__rel_loc")
_COMMON = "common_"


@dataclass(frozen=True)
class Field:
    """One field of a tracepoint's record; offset and size in bytes.

    type: as the format writes it, without brackets ("char", "struct request *", "__data_loc char").
    elements: of an array; 0: it is none.
    """

    name: str
    offset: int
    size: int
    signed: bool
    type: str = ""
    elements: int = 0
    is_located: bool = False
    """Whether the record has only the place of the value, whose length varies."""


@dataclass(frozen=True)
class Format:
    """A tracepoint by its `events/SYSTEM/NAME/format`; number: the ID for perf_event_open(2)."""

    name: str
    number: int
    fields: dict[str, Field]

    @property
    def own_fields(self) -> dict[str, Field]:
        """The fields by name without those that every tracepoint has (common_pid, …)."""
        return {n: field for n, field in self.fields.items() if not n.startswith(_COMMON)}

    @property
    def size(self) -> int:
        """Bytes of a record, without what varies in length."""
        return max(field.offset + field.size for field in self.fields.values())


def parse(name: str, text: str) -> Format:
    """Return the format that is in `text`, the content of tracepoint `name`'s file `format`.

    Fields, also those of the common header, are by name alone ("rwbs" of "char rwbs[10]", "cmd" of
    "__data_loc char[] cmd"). Raises ProbeError: the text has no ID or no field.
    """
    number = re.search(r"^ID:\s*(\d{1,9})\s*$", text, re.MULTILINE)
    fields = {}
    for line in text.splitlines():
        if (match := _FIELD.match(line)) is None:
            continue
        declaration, size = match["declaration"], int(match["size"])
        *kind, field = _ELEMENTS.sub("", declaration).replace("*", " * ").split()
        counted = _ELEMENTS.search(declaration)
        elements = 0
        located = declaration.startswith(_LOCATED)
        if counted and not located:
            # Some give the number as an expression of the kernel's source: "char comm[TASK_LEN]".
            elements = int(counted[1]) if re.fullmatch("[0-9]{1,6}", counted[1]) else size
        signed = match["signed"] == "1"
        where = int(match["offset"]), size, signed
        fields[field] = Field(field, *where, " ".join(kind), elements, located)
    if number is None or not fields:
        raise ProbeError(
            f"the format of tracepoint {name} cannot be understood: it begins with {text[:40]!r}; "
            "please report it with the kernel's version"
        )
    return Format(name, int(number[1]), fields)

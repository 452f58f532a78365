# SPDX-License-Identifier: Apache-2.0
"""A log's header, notes, losses and end as JSON that another file format can carry."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from biotrail.recorder.log import validation
from biotrail.recorder.log.frames import DamagedError, decode_json, encode_json
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.payloads import End, Header, LossWindow

Note = tuple[str, dict[str, Any]]


@dataclass
class Facts:
    """All that a log holds beside its records, as in LogReader's attributes.

    notes: (name, payload). end: None where the log has none.
    """

    header: dict[str, Any]
    notes: list[Note] = field(default_factory=list)
    losses: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] | None = None


def pack_facts(facts: Facts) -> dict[str, str]:
    """Return the facts as JSON text by name: "header", "notes", "losses", "end".

    notes: a list of {"name", "payload"}. end: {"end": …}, or {} where there is none. Bytes that are
    no UTF-8 become U+FFFD. Raises DamagedError where a value is nested too deeply.
    """
    return {
        "header": pack_json(facts.header),
        "notes": pack_json([{"name": name, "payload": what} for name, what in facts.notes]),
        "losses": pack_json(facts.losses),
        "end": pack_json({} if facts.end is None else {"end": facts.end}),
    }


def pack_json(value: Any) -> str:
    """Return `value` as JSON that is valid UTF-8; raises DamagedError: it is nested too deeply."""
    return encode_json(validation.plain(value)).decode()


def unpack_facts(name: str, packed: Mapping[str, bytes]) -> Facts:
    """Return the facts that `pack_facts` packed, checked as a log's are (validation.py).

    `name`: of the file, for messages. `packed`: JSON in UTF-8 by name; other keys are ignored.
    Raises LogFormatError where a part is missing, is no valid JSON, is nested too deeply, or has
    another shape.
    """
    try:
        shapes = {"header": dict, "notes": list, "losses": list, "end": dict}
        header, found, losses, ended = (
            validation.plain(decode_json(packed[part], shape)) for part, shape in shapes.items()
        )
        validation.check(header, Header)
        notes = [validation.note(value) for value in found]
        validation.check(losses, list[LossWindow])
        end = ended.get("end")
        if end is not None:
            validation.check(end, End)
    except KeyError as error:
        raise LogFormatError(
            f"{name}: the log's {error.args[0]} is missing; make it again from the log"
        ) from None
    except DamagedError as error:
        raise LogFormatError(
            f"{name}: what it says of its log {error}: no biotrail writes that; make it again from "
            "the log"
        ) from None
    return Facts(header, notes, losses, end)


def unpack_json(name: str, data: bytes, what: str) -> dict[str, Any]:
    """Return the object that `data` holds as JSON, without checking its shape.

    `name`, `what`: the file and the part of it ("the …"), for messages. Bytes that are no UTF-8
    become surrogate escapes. Raises LogFormatError where `data` is no valid JSON, no object, or has
    too many values (MAX_JSON_VALUES).
    """
    try:
        value: dict[str, Any] = decode_json(data, dict)
    except DamagedError as error:
        raise LogFormatError(f"{name}: {what} {error}; make it again from the log") from None
    return value

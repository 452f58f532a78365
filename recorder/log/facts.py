# SPDX-License-Identifier: Apache-2.0
"""What a log knows beside its records, as another file format carries it: JSON to be checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from biotrail.recorder.log import validation as log_shapes
from biotrail.recorder.log.frames import DamagedError, decode_json, encode_json
from biotrail.recorder.schema.errors import LogFormatError

Note = tuple[str, dict[str, Any]]


@dataclass
class Facts:
    """header, end: objects; end is None where there is none. notes: (name, payload)."""

    header: dict[str, Any]
    notes: list[Note] = field(default_factory=list)
    losses: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] | None = None


def pack_facts(facts: Facts) -> dict[str, str]:
    """Each as JSON, by its name."""
    return {
        "header": pack_json(facts.header),
        "notes": pack_json([{"name": name, "payload": what} for name, what in facts.notes]),
        "losses": pack_json(facts.losses),
        "end": pack_json({} if facts.end is None else {"end": facts.end}),
    }


def pack_json(value: Any) -> str:
    """JSON that is UTF-8, whatever bytes file names were."""
    return encode_json(log_shapes.plain(value)).decode()


def unpack_facts(name: str, packed: Mapping[str, bytes]) -> Facts:
    """What pack_facts gave, of the shapes that readers count on.

    name: of the file, for messages. Raises LogFormatError.
    """
    try:
        header = _plain(packed["header"], dict)
        log_shapes.HEADER(header, "")
        notes = [read_note(value) for value in _plain(packed["notes"], list)]
        losses = _plain(packed["losses"], list)
        log_shapes.LOSSES(losses, "")
        end = _plain(packed["end"], dict).get("end")
        if end is not None:
            log_shapes.END(end, "")
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
    """An object from JSON. Raises LogFormatError."""
    try:
        value: dict[str, Any] = decode_json(data, dict)
    except DamagedError as error:
        raise LogFormatError(f"{name}: {what} {error}; make it again from the log") from None
    return value


def _plain(data: bytes, expected: type) -> Any:
    return log_shapes.plain(decode_json(data, expected))


def read_note(value: Any) -> Note:
    """(name, payload) of a note's JSON. Raises DamagedError: it is none, or of another shape."""
    if isinstance(value, dict):
        name, payload = value.get("name"), value.get("payload")
        if isinstance(name, str) and isinstance(payload, dict):
            log_shapes.note(name, payload)
            return name, payload
    raise DamagedError("holds no note")

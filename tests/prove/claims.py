# SPDX-License-Identifier: Apache-2.0
"""What a part of the proof showed, and the one table in which all of it ends."""

from collections.abc import Iterable
from dataclasses import dataclass

HEAD = "| part | what | found | bound | holds |\n|---|---|---|---|---|"


@dataclass(frozen=True)
class Claim:
    """One thing that must hold, and what was found."""

    part: str
    what: str
    found: str
    bound: str
    holds: bool


def table(claims: Iterable[Claim]) -> str:
    """All claims in one table."""
    rows = [
        f"| {c.part} | {c.what} | {c.found} | {c.bound} | {'yes' if c.holds else 'NO'} |"
        for c in claims
    ]
    return "\n".join([HEAD, *rows])


def not_run(part: str, why: str) -> Claim:
    """A part that could not run: that proves nothing."""
    return Claim(part, "can run here", why, "", False)


def failed(claims: Iterable[Claim]) -> bool:
    """Whether anything does not hold."""
    return not all(c.holds for c in claims)

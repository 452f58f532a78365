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
    skipped: bool = False
    """It could not be tried here, `found` says why, and that is no failure."""

    @property
    def verdict(self) -> str:
        """The word of its last cell."""
        if self.skipped:
            return "skipped"
        return "yes" if self.holds else "NO"


def table(claims: Iterable[Claim]) -> str:
    rows = [f"| {c.part} | {c.what} | {c.found} | {c.bound} | {c.verdict} |" for c in claims]
    return "\n".join([HEAD, *rows])


def not_run(part: str, why: str) -> Claim:
    """A part that could not run: that proves nothing."""
    return Claim(part, "can run here", why, "", False)


def skipped(part: str, what: str, why: str) -> Claim:
    """Something that cannot be tried here, for want of a program."""
    return Claim(part, what, why, "", holds=False, skipped=True)


def failed(claims: Iterable[Claim]) -> bool:
    return not all(c.holds or c.skipped for c in claims)

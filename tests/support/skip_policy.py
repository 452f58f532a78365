# SPDX-License-Identifier: Apache-2.0
"""Which tests may skip where every skip counts, and the verdict on those that did.

`may-skip.toml` holds one `[[skip]]` table per permission: `test` and `reason` are glob
patterns for the test's id and the reason that it gave, `why` says what makes it right.
"""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path


@dataclass(frozen=True)
class Skip:
    """One test that skipped, and the reason that it gave."""

    test: str
    reason: str


@dataclass(frozen=True)
class Permission:
    """One entry of the list: patterns for the test's id and its reason, and why."""

    test: str
    reason: str
    why: str

    def covers(self, skip: Skip) -> bool:
        """Whether this entry permits the skip."""
        return fnmatchcase(skip.test, self.test) and fnmatchcase(skip.reason, self.reason)


def read_permissions(path: Path) -> list[Permission]:
    """Return the list's entries; an entry without all three texts raises ValueError."""
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("skip", [])
    for number, entry in enumerate(entries, 1):
        if set(entry) != {"test", "reason", "why"} or not all(entry.values()):
            raise ValueError(f"{path}: entry {number} needs test, reason and why: {entry}")
    return [Permission(**entry) for entry in entries]


def forbidden(skips: Iterable[Skip], permissions: list[Permission]) -> list[Skip]:
    """Return the skips that no entry permits."""
    return [skip for skip in skips if not any(entry.covers(skip) for entry in permissions)]

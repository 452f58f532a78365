# SPDX-License-Identifier: Apache-2.0
"""Names that people have for files, by patterns of their paths."""

import re
from collections.abc import Iterable
from fnmatch import translate
from functools import cache

DELETED = " (deleted)"
"""What stands behind the path of a file that had no name any more."""
_GLOB = re.compile(r"[*?\[]")


class Labels:
    """Labels by pattern; a path has that of the first pattern that is it, else that fits it.

    A pattern that does not begin with `/` or `*` is of the end of a path, from a `/` on.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        """pairs: (pattern, label)."""
        self._paths: dict[str, str] = {}
        self._globs: list[tuple[re.Pattern[str], str]] = []
        for pattern, label in pairs:
            if not _GLOB.search(pattern):
                self._paths.setdefault(pattern, label)
                continue
            whole = pattern if pattern[0] in "/*" else f"*/{pattern}"
            self._globs.append((re.compile(translate(whole)), label))
        self.of = cache(self._of)

    def _of(self, path: str) -> str | None:
        """Return the label of a path; None: it has none."""
        path = path.removesuffix(DELETED)
        if (found := self._paths.get(path)) is not None:
            return found
        end = path
        while end:
            _, _, end = end.partition("/")
            if (found := self._paths.get(end)) is not None:
                return found
        return next((label for glob, label in self._globs if glob.match(path)), None)

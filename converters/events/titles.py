# SPDX-License-Identifier: Apache-2.0
"""Titles of processes: what they call themselves, or which script an interpreter runs."""

from collections.abc import Mapping


class Titles:
    """Titles by process id, from notes; they grow while a log is read."""

    def __init__(self) -> None:
        self._by_pid: dict[int, dict[str, str]] = {}

    def add(self, note: Mapping[str, Mapping[str, str]]) -> None:
        """Add the titles of a `titles` note (docs/log-format.md)."""
        for pid, one in note.items():
            names = self._by_pid.setdefault(int(pid), {})
            names.pop(one.get("comm", ""), None)  # so that the newest is the last
            names[one.get("comm", "")] = one.get("title", "")

    def title(self, pid: int | None, comm: str | None) -> str | None:
        """Return the newest title of a process; None: it has none, or none is known.

        comm: the name of one of its threads. Where the process had a title when it was called so
        itself, that is meant: its id may be another's later, and a title goes with a new program.
        """
        names = self._by_pid.get(-1 if pid is None else pid)
        if not names:
            return None
        found = names.get(comm or "")
        return (found if found is not None else next(reversed(names.values()))) or None


def called(process: str, title: str | None) -> str:
    """Return what people call a process: its title, behind its thread's name if that is another."""
    if not title:
        return process
    return title if process in title else f"{process} ({title})"

# SPDX-License-Identifier: Apache-2.0
"""From files to one part: recordings are read by the workers, and added up in a tree."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dask.distributed import Client, Future, as_completed, wait
from distributed import KilledWorker

from biotrail.cli.fleets import tasks
from biotrail.cli.fleets.tasks import Asked, Seen
from biotrail.converters.analysis.fleet.part import Part
from biotrail.converters.analysis.fleet.tree import LeftOut
from biotrail.converters.inputs.parquet.locations import SUFFIX
from biotrail.recorder.schema.errors import ConversionError

FAN_IN = 8
"""Parts that one task adds up."""
_FIRST = 10
"""Priority of tasks that make results smaller, before those that read more."""
Columns = Callable[[str], dict[str, str]]
"""Host → what the user's table says of it, by column."""
Told = Callable[[str], None]
"""Is told how far the work has come."""


@dataclass
class Host:
    """A host's recordings, each a list of its files, while they are read."""

    recordings: list[list[str]] = field(default_factory=list)
    read: list[Future] = field(default_factory=list)
    """Parts of the recordings that were read."""
    open: int = 0
    """Recordings that are still to be read."""


def analyse(
    client: Client, files: Sequence[str], columns: Columns, asked: Asked, told: Told
) -> Part:
    """Return the part of all files, each host closed; files that cannot be read are named in it.

    Raises ConversionError: the connection to the scheduler was lost.
    """
    seen, left_out = _look(client, files, told)
    hosts, double = hosts_of(seen)
    whole, broken = _read(client, hosts, columns, asked, told)
    whole.left_out += [*left_out, *double, *broken]
    return whole


def _look(client: Client, files: Sequence[str], told: Told) -> tuple[list[Seen], list[LeftOut]]:
    """Return what the headers of the files say, in any order, and which have none."""
    seen: list[Seen] = []
    left_out: list[LeftOut] = []
    looking = client.map(tasks.look, list(files), pure=False, batch_size=1000)
    given = dict(zip(looking, files, strict=True))
    for count, future in enumerate(as_completed(looking), 1):
        failed = _failure([given[future]], future)
        found = failed[0] if failed else future.result()
        if isinstance(found, Seen):
            seen.append(found)
        else:
            left_out.append(found)
        told(f"{count} of {len(files)} files looked at")
    return seen, left_out


def hosts_of(seen: Iterable[Seen]) -> tuple[dict[str, Host], list[LeftOut]]:
    """Return host → its recordings, and the files that are copies of others.

    The files of a rotated run are one recording. Of several files of one log (a log and its
    archive, or copies) an archive is kept, which is whole where a log may be cut off; of several
    the first by name.
    """
    runs: dict[tuple[str, str], list[str]] = {}
    known: dict[str, str] = {}
    double: list[LeftOut] = []
    for one in sorted(seen, key=lambda one: (not _is_archive(one.file), one.file)):
        if one.log_id in known:
            double.append(LeftOut(one.file, f"is the same log as {known[one.log_id]}"))
            continue
        known[one.log_id] = one.file
        runs.setdefault((one.host, one.run), []).append(one.file)
    hosts: dict[str, Host] = {}
    for (host, _), files in sorted(runs.items(), key=lambda run: min(run[1])):
        hosts.setdefault(host, Host()).recordings.append(sorted(files))
    return hosts, double


def _is_archive(file: str) -> bool:
    """Tell whether a path, or a URL with or without options, is named as an archive."""
    return file.partition("?")[0].endswith(SUFFIX)


def _read(
    client: Client, hosts: dict[str, Host], columns: Columns, asked: Asked, told: Told
) -> tuple[Part, list[LeftOut]]:
    """Read all recordings, and return their sum, and the files whose workers failed.

    A recording's task gives a part; when all of a host are there, a task closes the host; and each
    FAN_IN parts that are there are added up by a task, until one is left. Dask decides what runs
    where, and runs again what was on a worker that ended.
    """
    reading: dict[Future, tuple[str, list[str]]] = {}
    for name, host in hosts.items():
        for files in host.recordings:
            task = client.submit(tasks.read, files, columns(name), asked, pure=False)
            reading[task] = name, files
            host.open += 1
    whole, done = len(reading), 0
    broken: list[LeftOut] = []
    ready: list[Future] = []
    completed = as_completed(list(reading))
    for future in completed:
        if future not in reading:
            ready.append(future)
        else:
            name, files = reading.pop(future)
            host = hosts[name]
            host.open -= 1
            failed = _failure(files, future)
            broken += failed
            if not failed:
                host.read.append(future)
            if not host.open and host.read:
                completed.add(_reduced(client, tasks.close, host.read, asked))
                host.read = []
            done += 1
            told(f"{done} of {whole} recordings read")
        if len(ready) == FAN_IN:
            completed.add(_reduced(client, tasks.add_up, ready))
            ready = []
    return _result(_reduced(client, tasks.add_up, ready)), broken


def _reduced(client: Client, task: Callable[..., Part], parts: list[Future], *more: Any) -> Future:
    """Return the future of `task` of the parts and `more`."""
    return client.submit(task, parts, *more, pure=False, priority=_FIRST)


def _result(future: Future) -> Part:
    """Return a part from its worker. Raises ConversionError where it cannot be had."""
    wait([future])
    if failed := _failure([], future):
        raise ConversionError(f"the parts could not be added up: {failed[0].why}")
    found: Part = future.result()
    return found


def _failure(files: Sequence[str], future: Future) -> list[LeftOut]:
    """Return the files of a task that failed, with the reason; empty if it did not.

    Without files one nameless entry. Raises ConversionError: the scheduler is gone.
    """
    if future.status in ("cancelled", "lost"):
        raise ConversionError(
            "the connection to the scheduler was lost before all was read; nothing was changed, so "
            "run the command again"
        )
    if future.status != "error":
        return []
    error = future.exception()
    if isinstance(error, KilledWorker):
        why = (
            "each worker that read it ended, perhaps for lack of memory; give workers more memory, "
            "or a shorter time (--from, --to)"
        )
    else:
        why = f"reading failed ({type(error).__name__}: {error}); please report this"
    return [LeftOut(name, " ".join(why.split())) for name in list(files) or [""]]

# SPDX-License-Identifier: Apache-2.0
"""`biotrail fleet` on the workers of a Dask cluster: files are read there, and parts added up.

A file that cannot be read ends no task: it is named in the task's result.
"""

import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dask import config
from dask.distributed import Client, Future, LocalCluster, as_completed, wait
from distributed import KilledWorker, Worker, WorkerPlugin
from distributed.comm import CommClosedError

from biotrail import __version__
from biotrail.cli.options.blame_reading import Blaming
from biotrail.cli.options.cuts import Cut, cut_of
from biotrail.cli.options.opening import USUAL, Reading
from biotrail.converters.analysis.fleet import closing
from biotrail.converters.analysis.fleet.part import Part, merged, read_part
from biotrail.converters.analysis.fleet.tree import LeftOut
from biotrail.converters.analysis.report.tree import Report
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.inputs.beginning import is_url
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.inputs.parquet.locations import SUFFIX
from biotrail.converters.inputs.series import run_of, series_of
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.allocator import keep_freed_memory
from biotrail.recorder.schema.errors import ConversionError, TraceError
from biotrail.recorder.schema.file_kinds import no_regular_file
from biotrail.text.report.verdict import SHOWN, as_dicts, verdict


@dataclass(frozen=True)
class ReadOptions:
    by: str
    cut: Cut = field(default_factory=Cut)
    reading: Reading = USUAL
    seed: int = 0
    blame: str | None = None
    """What victims and culprits are; None: nobody is blamed."""


@dataclass(frozen=True)
class Seen:
    file: str
    """Path or URL."""
    host: str
    log_id: str
    run: str
    """Id of the rotated recording that the file is of; the log's id if it is a recording itself."""


def version() -> str:
    return __version__


def look(file: str) -> Seen | LeftOut:
    try:
        if not is_url(file) and (what := no_regular_file(file)):
            return LeftOut(file, f"is {what}")
        source = open_source(file)
        log_id = str(source.header.get("log_id", file))
        return Seen(file, Context(source.header).host, log_id, run_of(source) or log_id)
    except (TraceError, OSError) as error:
        return LeftOut(file, reason(file, error))


def read(files: Sequence[str], columns: dict[str, str], asked: ReadOptions) -> Part:
    """Return what a recording adds to the report; of one that cannot be read only `left_out`."""

    def again() -> Trace:
        sources = [(name, open_source(name)) for name in files]
        source = sources[0][1] if len(sources) == 1 else series_of(sources)
        return asked.reading.trace(source)

    try:
        part = cut_of(again, asked.cut)
        every: Iterable[Lifecycles] = part.trace.lifecycles()
        blaming = None
        if asked.blame is not None:
            blaming = Blaming(again, asked.cut, asked.blame, shown=False)
            every = blaming.watch(part.trace, every)

        def told(report: Report) -> list[dict[str, Any]]:
            if blaming is not None:
                report.blamed = blaming.finish()[1]
            return as_dicts(verdict(report)[:SHOWN])

        windows = part.chosen(every)
        return read_part(part.trace, windows, asked.by, columns, list(files), told)
    except (TraceError, OSError) as error:
        return Part(left_out=[LeftOut(name, reason(name, error)) for name in files])


def close(parts: Sequence[Part], asked: ReadOptions) -> Part:
    """Return all recordings of one host as one part, closed; without a recording as they are."""
    if not any(part.recordings for part in parts):
        return merged(parts)
    return closing.close_host(parts, asked.seed, asked.by)


def reason(file: str, error: Exception) -> str:
    """Return an error as a sentence that does not begin with the file's own name."""
    text = str(error) if isinstance(error, TraceError) else f"{type(error).__name__}: {error}"
    return " ".join(text.removeprefix(f"{file}: ").split())


MEMORY = 512 << 20
"""Bytes that a worker of the local cluster may have; Dask restarts one that takes more."""
_LOST = (
    "the connection to the scheduler was lost before all was read; nothing was changed, so run the "
    "command again"
)
_PATIENCE = 20
_CONFIG = {
    "distributed.comm.timeouts.connect": f"{_PATIENCE}s",
    "distributed.admin.tick.limit": "1h",
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    # A worker's memory is nearly all the window that it reads: putting results on the disk, or
    # waiting, would not make it less. It is ended only at 95 % of MEMORY.
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    # One thread each; memory that windows use again and again is kept. Dask's own setting has it
    # returned to the kernel each time (MALLOC_TRIM_THRESHOLD_), which takes 1.7 times the CPU time.
    "distributed.nanny.pre-spawn-environ": {
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), 1),
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    },
}
"""Settings of Dask, of which the last four are for the local cluster alone."""


@contextmanager
def client_of(scheduler: str | None, workers: int | None) -> Iterator[Client]:
    """Yield a client of a scheduler or of a cluster here, of a process per CPU or `workers`.

    The cluster listens on the loopback interface alone, to those with its temporary keys (TLS), for
    whoever reaches a scheduler can run code there; its files are in a private directory.
    """
    # Dask prints what it retries and why; the command says at its end what could not be done.
    for name in ("distributed", "distributed.client", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    where = scheduler or "this machine's cluster"
    with config.set(_CONFIG), tempfile.TemporaryDirectory(prefix="biotrail-fleet-") as directory:
        try:
            if scheduler is not None:
                try:
                    client = Client(scheduler, timeout=_PATIENCE)
                except (OSError, ValueError) as error:
                    raise ConversionError(
                        f"{scheduler}: no Dask scheduler answers there ({error}); start one (dask "
                        "scheduler), or leave out --scheduler"
                    ) from error
                with client:
                    _check_workers(client, scheduler)
                    yield client
                return
            with (
                LocalCluster(
                    n_workers=workers or len(os.sched_getaffinity(0)),
                    threads_per_worker=1,
                    memory_limit=MEMORY,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    scheduler_kwargs={"dashboard": False},
                    security=True,
                    local_directory=directory,
                    silence_logs=logging.CRITICAL,
                ) as cluster,
                Client(cluster) as client,
            ):
                client.register_plugin(_KeepMemory())
                yield client
        except (CommClosedError, TimeoutError) as error:
            raise ConversionError(f"{where}: {_LOST}") from error


class _KeepMemory(WorkerPlugin):  # type: ignore[misc]  # Dask has no types
    """Has each worker, those started again too, keep freed memory as a command's process does."""

    def setup(self, worker: Worker) -> None:
        keep_freed_memory()


def _check_workers(client: Client, scheduler: str) -> None:
    if not client.scheduler_info(n_workers=-1)["workers"]:
        raise ConversionError(
            f"{scheduler}: the scheduler has no workers; start some (dask worker {scheduler})"
        )
    try:
        versions = client.run(version)
    except ImportError as error:
        raise ConversionError(
            f"{scheduler}: a worker cannot import biotrail ({error}); install biotrail "
            f"{__version__} with the extra fleet there"
        ) from error
    for worker, other in versions.items():
        if other != __version__:
            raise ConversionError(
                f"{scheduler}: the worker {worker} has biotrail {other}, and this is "
                f"{__version__}; install the same version everywhere"
            )


FAN_IN = 8
_FIRST = 10
"""Priority of tasks that make results smaller, before those that read more."""
Columns = Mapping[str, dict[str, str]]
"""Host → what the user's table says of it, by column."""
Told = Callable[[str], None]


@dataclass
class Host:
    recordings: list[list[str]] = field(default_factory=list)
    read: list[Future] = field(default_factory=list)
    open: int = 0


def analyse(
    client: Client, files: Sequence[str], columns: Columns, asked: ReadOptions, told: Told
) -> Part:
    seen: list[Seen] = []
    left_out: list[LeftOut] = []
    looking = client.map(look, list(files), pure=False, batch_size=1000)
    given = dict(zip(looking, files, strict=True))
    for count, future in enumerate(as_completed(looking), 1):
        failed = _failure([given[future]], future)
        found = failed[0] if failed else future.result()
        if isinstance(found, Seen):
            seen.append(found)
        else:
            left_out.append(found)
        told(f"{count} of {len(files)} files looked at")
    hosts, double = hosts_of(seen)
    whole, broken = _read(client, hosts, columns, asked, told)
    whole.left_out += [*left_out, *double, *broken]
    return whole


def hosts_of(seen: Iterable[Seen]) -> tuple[dict[str, Host], list[LeftOut]]:
    """Return host → its recordings, and the files that are copies of others.

    Of a log and its archive the archive is kept, which is whole where a log may be cut off.
    """
    runs: dict[tuple[str, str], list[str]] = {}
    known: dict[str, str] = {}
    double: list[LeftOut] = []
    for one in sorted(
        seen, key=lambda one: (not one.file.partition("?")[0].endswith(SUFFIX), one.file)
    ):
        if one.log_id in known:
            double.append(LeftOut(one.file, f"is the same log as {known[one.log_id]}"))
            continue
        known[one.log_id] = one.file
        runs.setdefault((one.host, one.run), []).append(one.file)
    hosts: dict[str, Host] = {}
    for (host, _), files in sorted(runs.items(), key=lambda run: min(run[1])):
        hosts.setdefault(host, Host()).recordings.append(sorted(files))
    return hosts, double


def _read(
    client: Client, hosts: dict[str, Host], columns: Columns, asked: ReadOptions, told: Told
) -> tuple[Part, list[LeftOut]]:
    """Read all recordings, and return their sum, and the files whose workers failed.

    When all parts of a host are there, a task closes the host; each FAN_IN parts are added up by a
    task, until one is left. Dask runs again what was on a worker that ended.
    """
    reading: dict[Future, tuple[str, list[str]]] = {}
    for name, host in hosts.items():
        for files in host.recordings:
            task = client.submit(read, files, columns.get(name, {}), asked, pure=False)
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
                completed.add(client.submit(close, host.read, asked, pure=False, priority=_FIRST))
                host.read = []
            done += 1
            told(f"{done} of {whole} recordings read")
        if len(ready) == FAN_IN:
            completed.add(client.submit(merged, ready, pure=False, priority=_FIRST))
            ready = []
    result = client.submit(merged, ready, pure=False, priority=_FIRST)
    wait([result])
    if failed := _failure([], result):
        raise ConversionError(f"the parts could not be added up: {failed[0].why}")
    return result.result(), broken


def _failure(files: Sequence[str], future: Future) -> list[LeftOut]:
    """Return the files of a task that failed, with the reason; without files a nameless entry."""
    if future.status in ("cancelled", "lost"):
        raise ConversionError(_LOST)
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

# SPDX-License-Identifier: Apache-2.0
"""The workers that read: those of a scheduler that the user has, or Dask's own local cluster."""

import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from dask import config
from dask.distributed import Client, LocalCluster
from distributed.comm import CommClosedError

from biotrail import __version__
from biotrail.cli.fleets import tasks
from biotrail.recorder.schema.errors import ConversionError

MEMORY = 512 << 20
"""Bytes that a worker of the local cluster may have; Dask restarts one that takes more."""
_PATIENCE = 20
"""Seconds that a scheduler has to answer."""
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


def default_workers() -> int:
    """Return the number of CPUs that this process may run on."""
    return len(os.sched_getaffinity(0))


@contextmanager
def client_of(scheduler: str | None, workers: int) -> Iterator[Client]:
    """Yield a client of the scheduler at an address or, without one, of a cluster on this machine.

    workers: processes of the local cluster. It listens on the loopback interface alone, to
    those with its own temporary keys (TLS), for whoever reaches a scheduler can run code there; it
    has no dashboard, and keeps its files in a private directory that is removed. Raises
    ConversionError: the scheduler does not answer or is gone, or its workers lack this version of
    biotrail.
    """
    # Dask prints what it retries and why; the command says at its end what could not be done.
    for name in ("distributed", "distributed.client", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    where = scheduler or "this machine's cluster"
    with config.set(_CONFIG), tempfile.TemporaryDirectory(prefix="biotrail-fleet-") as directory:
        try:
            if scheduler is not None:
                with _connected(scheduler) as client:
                    yield client
                return
            with (
                LocalCluster(
                    n_workers=workers,
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
                yield client
        except (CommClosedError, TimeoutError) as error:
            raise _gone(where) from error


@contextmanager
def _connected(scheduler: str) -> Iterator[Client]:
    """Yield a client of the scheduler at an address, whose workers have this version."""
    try:
        client = Client(scheduler, timeout=_PATIENCE)
    except (OSError, ValueError) as error:
        raise ConversionError(
            f"{scheduler}: no Dask scheduler answers there ({error}); start one (dask scheduler), "
            "or leave out --scheduler"
        ) from error
    with client:
        _check_workers(client, scheduler)
        yield client


def _check_workers(client: Client, scheduler: str) -> None:
    """Raise ConversionError unless there are workers, all with this version of biotrail."""
    if not client.scheduler_info(n_workers=-1)["workers"]:
        raise ConversionError(
            f"{scheduler}: the scheduler has no workers; start some (dask worker {scheduler})"
        )
    try:
        versions = client.run(tasks.version)
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


def _gone(where: str) -> ConversionError:
    """Return the error to raise when the connection to a scheduler ends."""
    return ConversionError(
        f"{where}: the connection to the scheduler was lost before all was read; nothing was "
        "changed, so run the command again"
    )

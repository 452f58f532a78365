# SPDX-License-Identifier: Apache-2.0
"""Rows of `Bios` that requests stand for, where bios were not recorded.

A light log has one record per request, and recordings of other tools often have issues and
completions alone. One row then stands for all bios of a request: so whatever shows or adds up bios
works there as well.
"""

from dataclasses import replace

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    NO_CPU,
    U32,
    U64,
    Bios,
    Bool,
    Edges,
    PageKind,
    RequestKind,
    Requests,
    Stages,
)
from biotrail.converters.lifecycles.result import Result


def standing_bios(
    requests: Requests, context: Context, *, queue: I64, getrq: I64, cgroup: U64
) -> Bios:
    """Return a row for all bios of each request; its number is the request's.

    queue, getrq: times (ns). cgroup: id. What no request says is unknown: the thread, the file.
    """
    count = len(requests)
    return Bios(
        number=requests.number,
        dev=requests.dev,
        part=_partitions(requests, context),
        sector=requests.sector,
        bytes=requests.bytes,
        opf=requests.opf,
        tid=np.zeros(count, np.uint32),
        task=np.full(count, -1, np.int32),
        whom=np.full(count, -1, np.int32),
        cgroup=cgroup,
        ioprio=np.zeros(count, np.uint16),
        hint=np.zeros(count, np.uint8),
        page=np.full(count, PageKind.UNKNOWN, np.uint8),
        stack=np.full(count, -1, np.int32),
        file=np.full(count, -1, np.int32),
        cpu=np.full(count, NO_CPU, np.uint16),
        queue=queue,
        getrq=getrq,
        merge=np.full(count, NEVER, np.int64),
        insert=requests.insert.copy(),
        issue=requests.issue.copy(),
        complete=requests.complete.copy(),
        gone=requests.gone.copy(),
        fragments=np.ones(count, np.uint32),
        requests=np.ones(count, np.uint32),
        requeues=requests.requeues.copy(),
        status=requests.status.copy(),
        done_bytes=requests.done_bytes.copy(),
        request=requests.number.copy(),
        parent=requests.parent.copy(),
        family=requests.family.copy(),
        certainty=requests.certainty.copy(),
        doubtful=requests.doubtful.copy(),
        own=requests.own.copy(),
        cut=requests.cut.copy(),
    )


def _partitions(requests: Requests, context: Context) -> U32:
    """Return the partition (dev_t) in which each request begins, by its sector; else its disk."""
    found = requests.dev.copy()
    for part, entry in context.devices.items():
        disk = context.disk_of(part)
        first, sectors = context.partition_start(part, disk), entry.get("sectors")
        if first is None or sectors is None:
            continue
        within = (requests.dev == disk) & (requests.sector >= first)
        found[within & (requests.sector - np.uint64(first) < int(sectors))] = part
    return found


def with_standing(result: Result, context: Context) -> Result:
    """Return the result with a row of `Bios` for each request that stands for its bios."""
    ended, still = _standing(result.requests), _standing(result.open_requests)
    fresh = _bios(result.requests.take(ended), context)
    in_flight = _bios(result.open_requests.take(still), context)
    bios = Bios.concatenate([result.bios, fresh])
    open_bios = Bios.concatenate([result.open_bios, in_flight])
    of_requests = result.request_stages
    rows = np.isin(of_requests.owner, fresh.number)
    rows &= of_requests.start < of_requests.end  # no G2D of a request that begins with its issue
    edges = Edges(fresh.number, fresh.request, fresh.sector, fresh.bytes, fresh.certainty)
    stages = Stages.concatenate([result.bio_stages, of_requests.take(rows)])
    serving = [
        replace(requests, bios=np.where(rows, np.uint32(1), requests.bios))
        for requests, rows in ((result.requests, ended), (result.open_requests, still))
    ]
    return replace(
        result,
        bios=bios.take(np.argsort(bios.number, kind="stable")),
        open_bios=open_bios.take(np.argsort(open_bios.number, kind="stable")),
        requests=serving[0],
        open_requests=serving[1],
        edges=Edges.concatenate([result.edges, edges]),
        bio_stages=stages.take(np.argsort(stages.owner, kind="stable")),
    )


def _standing(requests: Requests) -> Bool:
    """Return which requests stand for their bios: those of which it is known when they began.

    Not the flush machinery's and passthrough, which have none, and not those that were merged into
    others, which end with these.
    """
    began = (requests.insert != NEVER) | (requests.issue != NEVER)
    normal = (requests.kind == RequestKind.NORMAL) & (requests.absorbed_by == NEVER)
    return np.asarray(began & normal & (requests.bios == 0), np.bool_)


def _bios(requests: Requests, context: Context) -> Bios:
    """Return a row for all bios of each request; they were allocated if that was recorded."""
    first = np.where(requests.insert == NEVER, requests.issue, requests.insert)
    getrq = np.where(requests.start < first, requests.start, NEVER)
    cgroup = np.zeros(len(requests), np.uint64)
    return standing_bios(requests, context, queue=requests.start.copy(), getrq=getrq, cgroup=cgroup)

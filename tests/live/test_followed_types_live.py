# SPDX-License-Identifier: Apache-2.0
"""Packets and pages that are followed by declaration alone: each one's way is in its life."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.events.site_tables import Hits
from biotrail.converters.pipeline import Trace
from biotrail.recorder.log import LogReader
from tests.support.paths import ROOT
from tests.support.record_command import biotrail

pytestmark = pytest.mark.usefixtures("needs_bpf")
_LOADS = ROOT / "tests" / "support" / "site_loads.py"
MESSAGES, PAGES = 40, 32


def lives(path: Path, struct: str, comm: str, load: Sequence[str]) -> Iterator[dict[str, int]]:
    """Record objects of a type while a load runs; each life's sites in order, with its detail.

    A dict by the site's name: the index of its first hit in the life; "detail": the last.
    """
    # Tracepoints alone, which every host can attach.
    follow = ("follow", struct, "--way", "typed", "--comm", comm, "--max", "4096", "-o", path)
    biotrail(*follow, "--", sys.executable, _LOADS, comm, *load)
    names = [site["name"] for site in LogReader(path).header["sites"]["follow"]["sites"]]
    tables = [window.sites.hits for window in Trace(path).lifecycles() if window.sites]
    hits = Hits.concatenate(tables)
    for life in np.unique(hits.life).tolist():
        rows = np.flatnonzero(hits.life == life)
        found: dict[str, int] = {}
        for at, site in enumerate(hits.site[rows].tolist()):
            found.setdefault(names[site], at)
        yield {**found, "detail": int(hits.detail[rows[0]])}


def test_each_message_goes_from_its_sender_to_its_reader(tmp_path: Path) -> None:
    # GIVEN messages over TCP on the loopback device, and as many answers
    found = list(lives(tmp_path / "log", "sk_buff", "bt-echo", ["echo", str(MESSAGES)]))
    # THEN each is one life, from the queue of the device through the stack to the copy for the
    # reader, in that order
    way = ("net_dev_queue", "netif_receive_skb", "tcp_probe", "skb_copy_datagram_iovec")
    whole = [life for life in found if all(site in life for site in way)]
    assert len(whole) == 2 * MESSAGES
    for life in whole:
        places = [life[site] for site in way]
        assert places == sorted(places)


def test_each_page_goes_into_the_cache_and_becomes_dirty(tmp_path: Path) -> None:
    # GIVEN a file whose pages are written by a mapping, synced and deleted; the kernel may keep
    # the deleted file's pages for longer than the recording
    load = ["map", str(PAGES), str(tmp_path / "file")]
    found = list(lives(tmp_path / "log", "folio", "bt-pages", load))
    # THEN each of its pages, known by its index in the file, has a life from the page cache on
    way = ("mm_filemap_add_to_page_cache", "writeback_dirty_folio")
    whole = {life["detail"] for life in found if all(site in life for site in way)}
    assert whole >= set(range(PAGES)), found

# SPDX-License-Identifier: Apache-2.0
"""The steps of association, in their order: from a window's events to bios, requests and links.

Each step takes what is known so far and returns its findings; nothing else is changed.
"""

from dataclasses import dataclass

from biotrail.converters.association.completion.completion import (
    RequestEnds,
    bio_ends,
    request_ends,
)
from biotrail.converters.association.completion.partial_completion import BioEnds
from biotrail.converters.association.identity.absorptions import absorptions, named_absorptions
from biotrail.converters.association.identity.address_reuse import ReusedAddresses
from biotrail.converters.association.identity.association import Association
from biotrail.converters.association.identity.joins import (
    exclude_by_chains,
    identity_certainty,
    join_identities,
)
from biotrail.converters.association.identity.request_parents import request_parents
from biotrail.converters.association.ranges.cut_chains import cut_chain_members
from biotrail.converters.association.ranges.loop_parents import loop_parents
from biotrail.converters.association.ranges.matching import implicit_splits, upper_bios
from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events


@dataclass(frozen=True)
class Associated:
    """One window's bios and requests, with how each request and each bio's own piece ended."""

    association: Association
    requests: RequestEnds
    pieces: BioEnds


def associate(events: Events, context: Context, reused: ReusedAddresses) -> Associated:
    """Return one window's bios, requests and links, and how requests and pieces of bios ended.

    By identity first, then by ranges (implicit splits, cut chains, upper bios), then the ends; last
    come upper bios of loop devices, which need the ends, and upper requests of dm clones. events:
    sorted by time; without kernel pointers, as `Identifier.identify` returns them. reused: what
    earlier windows recorded about reused addresses of the generations they kept.
    """
    a = join_identities(events, context, reused)
    a = a.with_findings(named_absorptions(a))
    a = a.with_findings(absorptions(a))
    a = a.with_findings(exclude_by_chains(a))
    a = a.with_findings(identity_certainty(a))
    requests = request_ends(a, context)
    a = a.with_findings(implicit_splits(a, context))
    a = a.with_findings(cut_chain_members(a, requests))
    a = a.with_findings(upper_bios(a, context))
    pieces, findings = bio_ends(a, requests, context)
    a = a.with_findings(findings)
    a = a.with_findings(loop_parents(a, requests, pieces, context))
    a = a.with_findings(request_parents(a))
    return Associated(a, requests, pieces)

# SPDX-License-Identifier: Apache-2.0
"""Operations and flags of bios, as their bits in bi_opf."""

from tests.support.captures import FLAG_BITS, OPS

PREFLUSH, FUA = 1 << FLAG_BITS["PREFLUSH"], 1 << FLAG_BITS["FUA"]
NOMERGE, SYNC = 1 << FLAG_BITS["NOMERGE"], 1 << FLAG_BITS["SYNC"]
READ, WRITE, FLUSH, DISCARD = OPS["READ"], OPS["WRITE"], OPS["FLUSH"], OPS["DISCARD"]
ZONE_APPEND, WRITE_ZEROES, DRV_IN = OPS["ZONE_APPEND"], OPS["WRITE_ZEROES"], OPS["DRV_IN"]
MERGEABLE = {READ, WRITE, DISCARD}

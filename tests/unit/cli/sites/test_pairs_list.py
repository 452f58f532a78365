# SPDX-License-Identifier: Apache-2.0
"""The list of declared pairs says which of them a kernel has."""

from pathlib import Path

from biotrail.cli.pairs import lines
from biotrail.recorder.sites.declarations import load
from tests.support.named_scopes import kernel_names, scopes_of


def test_a_pair_that_the_kernel_lacks_has_its_reason(tmp_path: Path) -> None:
    # GIVEN a user's pair beside the ready-made ones, and a 6.1 kernel, which has no fuse events
    own = tmp_path / "pairs.toml"
    own.write_text('[pairs.mine]\nabout = "Mine"\nbegin = "a:b"\nend = "a:c"\nkey = "k"\n')
    # WHEN they are listed
    shown = list(lines(load(own), scopes_of(kernel_names("6.1"))))
    # THEN the user's has its file, and what is missing is said below each such pair alone
    at = next(n for n, line in enumerate(shown) if line.startswith("mine "))
    assert shown[at].endswith(f"Mine  ({own})")
    assert shown[at + 1].strip() == "a:b to a:c"
    assert shown[at + 2].strip() == "not here: this kernel has no tracepoint a:b"
    assert sum("not here" in line for line in shown) == 3  # mine, fuse, iopf


def test_where_the_kernel_cannot_be_asked_nothing_is_said_of_it() -> None:
    # GIVEN a user who may not look into tracefs  THEN pairs are listed all the same
    shown = list(lines(load(Path("/nonexistent")), None))
    assert not any("not here" in line for line in shown)
    begins = next(line for line in shown if "sched_wakeup_new" in line)
    assert begins.strip() == (
        "sched:sched_wakeup or sched:sched_wakeup_new or sched:sched_switch to sched:sched_switch"
    )

# SPDX-License-Identifier: Apache-2.0
"""Figures as what Prometheus reads, checked by prometheus_client's own parser; and buckets."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.samples import Sample

from biotrail.cli.measuring.exposition import LES
from biotrail.cli.measuring.figures import by_name
from biotrail.cli.measuring.flight_logs import Exemplars, TriggerIO, bucket_of
from biotrail.cli.measuring.kernel import kernel_counts
from biotrail.cli.measuring.live_model import blamed, times
from biotrail.converters.analysis.blame.tree import OTHERS
from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.analysis.live.blame_totals import BlameTotals
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.limits import (
    MEASURE_BUCKETS,
    MEASURE_HALF,
    MEASURE_OCTAVE,
    MEASURE_SCALE,
    MEASURE_WHOLE,
)
from biotrail.recorder.schema.measure_structs import BOUNDS_NS
from tests.support.measured_figures import READ, SLOW_NS, exposed
from tests.support.metrics_scrapes import counts, parse, select, value
from tests.support.paths import ROOT

DOCS = ROOT / "docs" / "metrics"
SAMPLE = ROOT / "biotrail" / "data" / "demo.biotrail"


def samples(exemplars: Exemplars | None = None) -> list[Sample]:
    return parse(generate_openmetrics(exposed(exemplars)).decode())


def test_figures_become_samples_in_base_units() -> None:
    # GIVEN figures of a device, and of those that have none of their own
    found = samples()
    # WHEN they are served THEN counters, gauges and histograms have them
    assert value(found, "biotrail_ios_total", device="sda", operation="read") == 3
    assert value(found, "biotrail_ios_total", device="other", operation="other") == 7
    assert value(found, "biotrail_io_bytes_total", device="sda") == 12288
    assert value(found, "biotrail_io_errors_total", device="sda") == 1
    assert value(found, "biotrail_in_flight_ios", operation="read") == 1
    assert value(found, "biotrail_kernel_ios_total") == 9
    assert value(found, "biotrail_lost_events_total", reason="recursion") == 2
    assert value(found, "biotrail_unseen_completions_total") == 4
    assert value(found, "biotrail_skipped_seconds_total") == 1.5
    assert value(found, "biotrail_behind_seconds") == 0.25
    assert value(found, "biotrail_blame_seconds_total", victim="db", culprit="backup") == 1.5
    assert value(found, "biotrail_blame_waited_seconds_total", victim="db") == 4
    assert value(found, "biotrail_blame_untold_seconds_total", victim="db") == 0
    assert value(found, "biotrail_verdict", rule="waits") == 1
    assert value(found, "biotrail_verdict", rule="failed") == 0
    assert value(found, "biotrail_cpu_seconds_total", process="metrics") == 0.5
    assert value(found, "biotrail_program_sampled_run_seconds_total") == 2e-6
    name = "biotrail_io_duration_seconds"
    assert tuple(counts(found, name, device="sda")) == READ.latency.counts
    assert value(found, f"{name}_count", device="sda") == 3
    assert value(found, f"{name}_sum", device="sda") == pytest.approx(0.0050025)


def test_a_party_of_the_name_other_is_added_to_others() -> None:
    # GIVEN sums in which a program is called as the label of what is not kept apart
    totals = BlameTotals(Trace(SAMPLE).context, "process")
    totals.waited.update({"other": 2, OTHERS: 3})
    totals.behind.update({("other", "app"): 2, (OTHERS, "app"): 3})
    # WHEN labels are made THEN nothing is lost
    found = blamed(totals)
    assert (found.waited, found.behind) == ({"other": 5}, {("other", "app"): 5})


def test_a_hostile_name_can_be_served() -> None:
    # GIVEN a cgroup whose path is no UTF-8, with a line feed in it
    totals = BlameTotals(Trace(SAMPLE).context, "cgroup")
    totals.waited["/a\udc80\nb"] = 2
    # WHEN a label is made of it THEN it can be encoded, on one line
    [name] = blamed(totals).waited
    assert "\n" not in name and name.encode()


def test_an_exemplar_names_the_log_of_a_slow_io() -> None:
    # GIVEN a log of an I/O that was slow, and one whose name is too long for OpenMetrics
    slow = TriggerIO("host-1.biotrail", "sda", "read", 4096, SLOW_NS, 2_000_000_000)
    exemplars = Exemplars(
        {("sda", "read", bucket_of(SLOW_NS)): slow},
        {("sda", "read"): slow._replace(log="x" * 120)},
        {"slow": 1},
        {"slow": slow},
    )
    # WHEN figures are served
    found = samples(exemplars)
    # THEN the bucket of D2C in which it lies names its log and sector
    buckets = select(found, "biotrail_io_stage_duration_seconds_bucket", stage="D2C")
    marked = [(at, one.exemplar) for at, one in enumerate(buckets) if one.exemplar]
    assert [at for at, _ in marked] == [bucket_of(SLOW_NS)]
    assert marked[0][1].labels == {"log": "host-1.biotrail", "sector": "4096"}
    assert (marked[0][1].value, float(marked[0][1].timestamp)) == (0.005, 2.0)
    # AND the long name is left out, and all of them in the older format
    assert not [one for one in select(found, "biotrail_io_errors_total") if one.exemplar]
    assert b"host-1" not in generate_latest(exposed(exemplars))


def kernel_bucket(ns: int) -> int:
    """What bpf/measure.h's bt_measure_bucket returns."""
    if not ns >> MEASURE_OCTAVE:
        return 0
    octave = ns.bit_length() - 1
    if octave >= MEASURE_OCTAVE + MEASURE_BUCKETS // 2:
        return MEASURE_BUCKETS - 1
    behind = [ns > bound >> (MEASURE_SCALE - octave) for bound in (MEASURE_HALF, MEASURE_WHOLE)]
    return (octave - MEASURE_OCTAVE) * 2 + sum(behind)


def test_kernel_and_logs_divide_times_alike() -> None:
    # GIVEN times at, before and behind each bound, and far from all
    around = [bound + by for bound in BOUNDS_NS for by in (-1, 0, 1)]
    powers = [1 << octave for octave in range(63)]
    for ns in (0, *around, *powers):
        # WHEN they are put into buckets THEN the program and exemplars agree
        assert bucket_of(ns) == kernel_bucket(ns), ns
        # AND a bucket's times are at most its end, and longer than the end before
        ends = [0.0, *map(float, LES)]
        assert ends[bucket_of(ns)] < ns / 1e9 <= ends[bucket_of(ns) + 1] or not ns


def test_the_model_divides_times_as_the_kernel_does_but_near_bounds() -> None:
    # GIVEN times that are as far from each bound as a distribution's error
    times_ns = [int(bound * (1 + by)) for bound in BOUNDS_NS for by in (-0.008, 0.008)]
    for ns in (0, 1, *times_ns, 1 << 62):
        # WHEN the model adds one up THEN it is in the kernel's bucket
        distribution = Distribution()
        distribution.add(np.array([ns]))
        assert times(distribution).counts.index(1) == kernel_bucket(ns), ns


def test_figures_of_one_name_are_added_up() -> None:
    # GIVEN a device that took another's name WHEN figures are gathered THEN they are one
    added = by_name([READ, READ])
    assert [(one.ios, one.latency.sum_ns) for one in added] == [(6, 2 * READ.latency.sum_ns)]


def test_counts_of_the_kernel_are_those_of_sysfs(tmp_path: Path) -> None:
    # GIVEN a disk, one of dm without fields of flushes, and one that is not asked for
    stat = "1 0 8 0 2 0 16 0 0 0 0 3 0 0 0 4 0"
    for entry, text in (("sda", stat), ("dm-0", stat[:20]), ("sdb", stat)):
        (tmp_path / entry).mkdir()
        (tmp_path / entry / "inflight").write_text("  5 6\n")
        (tmp_path / entry / "stat").write_text(text)
    (tmp_path / "dm-0" / "dm").mkdir()
    (tmp_path / "dm-0" / "dm" / "name").write_text("data\n")
    # WHEN counts are read THEN they have what is there, under the mapper's name
    found = kernel_counts(["sda", "data", "gone"], str(tmp_path))
    assert [one.device for one in found] == ["data", "sda"]
    assert found[1].in_flight == {"read": 5, "write": 6}
    assert found[1].done == {"read": 1, "write": 2, "discard": 3, "flush": 4}
    assert found[0].done == {"read": 1, "write": 2}


def test_rules_and_dashboard_ask_for_what_is_served() -> None:
    # GIVEN all names that are served, with and without exemplars' logs
    slow = TriggerIO("a", "sda", "read", 0, SLOW_NS, 0)
    exemplars = Exemplars({}, {}, {"slow": 1}, {"slow": slow})
    served = {one.name for one in samples(exemplars)}
    served |= {one.name for one in exposed(exemplars).collect() if one.type == "histogram"}
    # WHEN rules and dashboard are read
    text = (DOCS / "rules.yml").read_text()
    expressions = re.findall(r"expr: *(?:>-\n)?((?:.|\n)*?)(?=\n +(?:for|labels|- )|$)", text)
    panels = json.loads((DOCS / "dashboard.json").read_text())["panels"]
    expressions += [target["expr"] for panel in panels for target in panel["targets"]]
    asked = set(re.findall(r"(?<![:\w])biotrail_\w+(?!\w|:)", "\n".join(expressions)))
    # THEN they ask for nothing else
    assert asked and asked <= served


@pytest.mark.parametrize(
    "arguments", [("check", "rules", "rules.yml"), ("test", "rules", "rules_test.yml")]
)
def test_rules_hold_by_promtool(arguments: tuple[str, ...]) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    # GIVEN the rules and their tests WHEN promtool reads them THEN it finds nothing wrong
    done = subprocess.run(
        ["promtool", *arguments], cwd=DOCS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr

# SPDX-License-Identifier: Apache-2.0
"""`biotrail metrics` as a process, what it answers, and a Prometheus that scrapes it."""

import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from biotrail.cli.measuring.exposition import Exposition
from biotrail.cli.measuring.figures import OTHER, Blame, Figures, Reading, Times
from biotrail.cli.measuring.flight_logs import Exemplars, bucket_of
from biotrail.cli.measuring.kernel import Counts
from biotrail.recorder.schema.limits import MEASURE_BUCKETS
from tests.support.record_command import BIOTRAIL, SECONDS, environment, started, wait_until

# Figures of `biotrail metrics` by hand, and the registry that serves them.

SLOW_NS = 5_000_000


def spread(*ns: int) -> Times:
    """A histogram of these times."""
    found = [0] * MEASURE_BUCKETS
    for one in ns:
        found[bucket_of(one)] += 1
    return Times(sum(ns), tuple(found))


READ = Figures("sda", "read", 3, 12288, 1, spread(500, 2000, SLOW_NS), {"D2C": spread(SLOW_NS)})
READING = Reading(
    [READ, Figures(OTHER, OTHER, 7)],
    {"recursion": 2},
    {"metrics": 0.5},
    runs=10,
    run_ns=2000,
    unseen=4,
    skipped_ns=1_500_000_000,
    behind_ns=250_000_000,
    blame=Blame(
        {("db", "backup"): 1_500_000_000, ("db", OTHER): 0}, {"db": 4_000_000_000}, {"db": 0}
    ),
    verdict={"waits": True, "failed": False},
)


def exposed(exemplars: Exemplars | None = None) -> CollectorRegistry:
    def of_kernel(names: object) -> list[Counts]:
        return [Counts("sda", {"read": 1, "write": 0}, {"read": 9})]

    found = (lambda: exemplars) if exemplars else None
    return Exposition(lambda: READING, {"version": "1"}, of_kernel, found).registry()


LATENCY, STAGE = "biotrail_io_duration_seconds", "biotrail_io_stage_duration_seconds"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
_URL = re.compile(r"http://[^ ]*/metrics")


@dataclass
class Metrics:
    """A process `biotrail metrics` that serves."""

    process: subprocess.Popen[str]
    url: str

    def text(self) -> str:
        return get(self.url, Accept=OPENMETRICS)

    def samples(self) -> list[Sample]:
        return parse(self.text())

    def value(self, name: str, **labels: str) -> float:
        return value(self.samples(), name, **labels)


def get(url: str, **headers: str) -> str:
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return answer.read().decode()


def parse(text: str) -> list[Sample]:
    """Samples of OpenMetrics text, as prometheus_client's own parser reads it."""
    return [one for family in text_string_to_metric_families(text) for one in family.samples]


def select(samples: list[Sample], name: str, **labels: str) -> list[Sample]:
    return [s for s in samples if s.name == name and labels.items() <= s.labels.items()]


def value(samples: list[Sample], name: str, **labels: str) -> float:
    """Sum of the samples of a name with these labels; 0 without any."""
    return sum(one.value for one in select(samples, name, **labels))


def counts(samples: list[Sample], name: str, **labels: str) -> list[int]:
    """Number of values in each bucket of a histogram."""
    total = [int(one.value) for one in select(samples, f"{name}_bucket", **labels)]
    return [b - a for a, b in zip([0, *total], total, strict=False)]


def quantile_bucket(buckets: list[int], share: float) -> int:
    """Bucket that holds a quantile."""
    rank, seen = share * sum(buckets), 0
    for bucket, count in enumerate(buckets):
        seen += count
        if seen >= rank:
            return bucket
    raise AssertionError("no values")


@contextmanager
def serving(*arguments: str | Path, **options: Any) -> Iterator[Metrics]:
    """`biotrail metrics` on a free port, from when it serves; killed if it still runs."""
    command = [*BIOTRAIL, "metrics", "--listen", "127.0.0.1:0", *map(str, arguments)]
    options = {"env": environment(), "stderr": subprocess.PIPE, "text": True, **options}
    with started(command, **options) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        found = _URL.search(said)
        assert found, said + process.stderr.read()
        yield Metrics(process, found[0])


@dataclass
class Prometheus:
    """A server of Prometheus on a free port."""

    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Samples of an instant vector; an expression that is wrong raises."""
        words = urllib.parse.urlencode({"query": expression})
        answer = json.loads(get(f"{self.url}/api/v1/query?{words}"))
        assert answer["status"] == "success", answer
        return answer["data"]["result"]

    def number(self, expression: str) -> float:
        """The only sample's value; 0 without any."""
        found = self.query(expression)
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else 0.0

    def slope(self, counter: str, window: str) -> float:
        """Growth a second of the only such counter, from its first to its last growing sample.

        By the times of scrapes, so it does not matter whether they came evenly.
        """
        (found,) = self.query(f"{counter}[{window}]")
        values = [(float(at), float(number)) for at, number in found["values"]]
        low, high = values[0][1], values[-1][1]
        growing = [one for one in values if low < one[1] < high]
        assert len(growing) > 1, values
        (begin, first), (end, last) = growing[0], growing[-1]
        return (last - first) / (end - begin)

    def rules(self) -> list[dict[str, Any]]:
        groups = json.loads(get(f"{self.url}/api/v1/rules"))["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def ready(self) -> bool:
        try:
            get(f"{self.url}/-/ready")
        except (urllib.error.URLError, ConnectionError):
            return False
        return True


@contextmanager
def prometheus(
    directory: Path, target: str, rules: Path, port: int, *features: str
) -> Iterator[Prometheus]:
    """Prometheus that scrapes `target` (host:port) each second; its data are in `directory`.

    features: of its --enable-feature, beside the storage of exemplars.
    """
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [{"job_name": "biotrail", "static_configs": [{"targets": [target]}]}],
    }
    config = directory / "prometheus.yml"
    config.write_text(json.dumps(settings))
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--enable-feature={','.join(('exemplar-storage', *features))}",
        "--log.level=warn",
    ]
    with (directory / "said").open("w") as said, started(command, stderr=said) as process:
        server = Prometheus(f"http://127.0.0.1:{port}")
        wait_until(lambda: server.ready() or process.poll() is not None, "Prometheus is ready")
        assert process.poll() is None, (directory / "said").read_text()
        yield server

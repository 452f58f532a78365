# SPDX-License-Identifier: Apache-2.0
"""`biotrail doctor`: what this machine can record, and what to do about the rest."""

import json
from dataclasses import asdict

import click

from recorder.probes.capability import Check, possible, report

IMPOSSIBLE = 1
"""Exit status where nothing can be recorded."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(as_json: bool) -> int:
    """Tell what this machine can record, what is missing, and the remedy.

    Loads nothing that stays. Exit status 1: nothing can be recorded here (by this user).

    \b
    sudo biotrail doctor
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    checks = report()
    able = possible(checks)
    if as_json:
        click.echo(json.dumps({"possible": able, "checks": [asdict(c) for c in checks]}, indent=2))
    else:
        for line in lines(checks):
            click.echo(line)
        click.echo("\n" + ("biotrail can record here" if able else "biotrail cannot record here"))
    return 0 if able else IMPOSSIBLE


def lines(checks: list[Check]) -> list[str]:
    """A line per check, its remedy below it. `NO` stops all recording, `no` some of it."""
    width = max((len(check.name) for check in checks), default=0)
    found = []
    for check in checks:
        mark = "ok" if check.ok else "NO" if check.required else "no"
        found.append(f"{mark:<4}{check.name:<{width}}  {check.detail}".rstrip())
        if not check.ok and check.remedy:
            found.append(f"{'':<{width + 4}}  → {check.remedy}")
    return found

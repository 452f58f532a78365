# SPDX-License-Identifier: Apache-2.0
"""`biotrail doctor`: checks of what this machine can record, each with a remedy."""

from dataclasses import asdict

import click

from biotrail.recorder.probes.capability import bcc_report, refusal, report
from biotrail.text.printing import say, say_json

IMPOSSIBLE = 1
"""Exit status if no backend can record."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(as_json: bool) -> int:
    """Check what this machine can record, and say how to get what is missing.

    Leaves nothing loaded. A check marked NO rules out the core backend; bcc may still record.
    The last line lists the backends that can record. Exit status 1: this user can record
    nothing here.

    \b
    sudo biotrail doctor
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    core, bcc = report(), bcc_report()
    checks = [*core, *bcc]
    able = {
        "core": all(check.ok for check in core if check.required),
        "bcc": refusal() is None and all(check.ok for check in bcc),
    }
    backends = [name for name, found in able.items() if found]
    if as_json:
        found = {"possible": bool(backends), "backends": backends}
        say_json(found | {"checks": [asdict(c) for c in checks]}, indent=2)
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:  # NO: core cannot record; no: it records less
            mark = "ok" if check.ok else "NO" if check.required else "no"
            say(f"{mark:<4}{check.name:<{width}}  {check.detail}".rstrip())
            if not check.ok and check.remedy:
                say(f"{'':<{width + 4}}  → {check.remedy}")
        which = f" (backends: {', '.join(backends)})" if backends else ""
        say()
        say(f"biotrail {'can' if backends else 'cannot'} record here{which}")
    return 0 if backends else IMPOSSIBLE

# SPDX-License-Identifier: Apache-2.0
"""The options --unit, --container and --pod: cgroups by what they are."""

from collections.abc import Callable
from typing import Any

import click

from biotrail.text import values


class PodName(values.Name):
    """The type of --pod: NAMESPACE/NAME, or a uid."""

    name = "pod"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Return the name. Raises click.UsageError for what is no name of a pod."""
        text = super().convert(value, param, ctx)
        namespace, slash, name = text.partition("/")
        if slash and (not namespace or not name or "/" in name):
            self.fail(f"{text!r} is no pod: write NAMESPACE/NAME, or a uid", param, ctx)
        return text


_WHAT = (
    (
        "unit",
        "NAME",
        values.Name(),
        "this systemd unit, wherever it is, or slice: db.service, or db",
    ),
    (
        "container",
        "NAME",
        values.Name(),
        "this container or guest, by name, or by id (12 characters at least)",
    ),
    ("pod", "NS/NAME", PodName(), "this pod's containers, by namespace and name, or by uid"),
)


def named_options(prefix: str, what: str, more: str) -> tuple[Callable[[Any], Any], ...]:
    """Return the options; the values' names are theirs behind `prefix`.

    what: what is chosen, such as "I/O of". more: a sentence at the end of each help text.
    """
    return tuple(
        click.option(
            f"--{name}",
            f"{prefix}{name}",
            multiple=True,
            type=kind,
            metavar=metavar,
            help=f"Only {what} {meaning}. {more}",
        )
        for name, metavar, kind, meaning in _WHAT
    )

# SPDX-License-Identifier: Apache-2.0
"""How a bug is put into the model of this process: a rule of a table broken, or a function patched.

Nothing of the source text is looked at: a bug names a table and rules in it, or a function.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from biotrail.converters.association.rules import Rule

MODEL = "biotrail.converters"
TABLES = {
    "requests": f"{MODEL}.association.identity.request_rules:REQUEST_RULES",
    "completed": f"{MODEL}.association.identity.completed_rules:COMPLETED_RULES",
    "bios": f"{MODEL}.association.identity.bio_rules:BIO_RULES",
    "resubmissions": f"{MODEL}.association.identity.remaps:RESUBMISSION_CONDITIONS",
    "request ends": f"{MODEL}.association.completion.end_rules:REQUEST_END_RULES",
    "lost completions": f"{MODEL}.association.completion.end_rules:COMPLETION_LOST_RULES",
    "splits": f"{MODEL}.association.ranges.conditions:SPLIT_CONDITIONS",
    "upper bios": f"{MODEL}.association.ranges.conditions:UPPER_CONDITIONS",
    "chains": f"{MODEL}.association.ranges.conditions:CHAIN_CONDITIONS",
    "chain refusals": f"{MODEL}.association.ranges.conditions:CHAIN_REFUSALS",
    "loops": f"{MODEL}.association.ranges.conditions:LOOP_CONDITIONS",
    "certainty of bios": f"{MODEL}.lifecycles.certainties:BIO_CERTAINTY_RULES",
    "certainty of requests": f"{MODEL}.lifecycles.certainties:REQUEST_CERTAINTY_RULES",
}
"""The tables of rules, `module:attribute` by name."""

AnyRule = Rule[Any]


def table(name: str) -> tuple[AnyRule, ...]:
    """Return the rules of a table, by its name in TABLES."""
    found = _at(TABLES[name])
    assert isinstance(found, tuple)
    return found


def dropped(rule: AnyRule) -> None:
    """Return None in place of any rule: it is left out of its table."""


def without(exemption: str) -> Callable[[AnyRule], AnyRule]:
    """Return the change that takes this exemption from a rule; KeyError: the rule has none so."""

    def change(rule: AnyRule) -> AnyRule:
        if exemption not in {e.name for e in rule.unless}:
            raise KeyError(f"rule '{rule.name}' has no exemption '{exemption}'")
        return replace(rule, unless=tuple(e for e in rule.unless if e.name != exemption))

    return change


@dataclass(frozen=True)
class RuleBroken:
    """Rules of one table, each changed; a rule changed to None is dropped.

    table: name in TABLES. rules: names of rules; "*" stands for all but those in `keeps`.
    """

    table: str
    rules: tuple[str, ...]
    change: Callable[[AnyRule], AnyRule | None] = dropped
    keeps: tuple[str, ...] = ()

    def pair(self) -> tuple[Any, Any]:
        """Return (table, broken table); KeyError if the table lacks one of the rules."""
        rules = table(self.table)
        names = {rule.name for rule in rules}
        wanted = names - set(self.keeps) if self.rules == ("*",) else set(self.rules)
        if missing := (wanted | set(self.keeps)) - names:
            raise KeyError(f"no rules {sorted(missing)} in table '{self.table}'")
        changed = [self.change(rule) if rule.name in wanted else rule for rule in rules]
        return rules, tuple(rule for rule in changed if rule is not None)

    def apply(self) -> None:
        """Put the broken table in the place of the right one, in every module that uses it."""
        replace_everywhere(*self.pair())


@dataclass(frozen=True)
class Patched:
    """A function, or a method of a class, with another in its place.

    place: `module:function` or `module:Class.method`, the module below biotrail.converters.
    wrong: right function → wrong one.
    """

    place: str
    wrong: Callable[[Callable[..., Any]], Callable[..., Any]]

    def pair(self) -> tuple[Any, Any]:
        """Return (right, wrong) function; AttributeError or ImportError: there is no such one."""
        right = _at(f"{MODEL}.{self.place}")
        return right, self.wrong(right)

    def apply(self) -> None:
        """Put the wrong function in the place of the right one, in every module that uses it."""
        right, wrong = self.pair()
        path = self.place.partition(":")[2]
        if "." in path:
            owner = _at(f"{MODEL}.{self.place.rpartition('.')[0]}")
            setattr(owner, path.rpartition(".")[2], wrong)
        else:
            replace_everywhere(right, wrong)


def _at(place: str) -> Any:
    """Return what stands at `module:attribute.attribute`."""
    module, _, path = place.partition(":")
    found: Any = import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found


def replace_everywhere(right: object, wrong: object) -> None:
    """Set every global of a loaded module of the model that is `right` to `wrong`."""
    for name, module in list(sys.modules.items()):
        if not name.startswith(MODEL):
            continue
        for attribute, value in list(vars(module).items()):
            if value is right:
                setattr(module, attribute, wrong)

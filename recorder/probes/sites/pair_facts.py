# SPDX-License-Identifier: Apache-2.0
"""What a log's header and end say of pairs, and how their values are shown."""

import os
from collections.abc import Iterable
from pathlib import Path

from biotrail.recorder.schema.device_numbers import dev_text
from biotrail.recorder.schema.payloads import PairFacts
from biotrail.recorder.schema.site_values import value_text
from biotrail.recorder.sites.expressions import Value
from biotrail.recorder.sites.resolving import ResolvedPair
from biotrail.recorder.symbols.kallsyms import LiveKernelSymbols

SYMBOL = "symbol"
"""Format of a value that is the address of a kernel function."""
_DEVICES = Path("/sys/dev/block")


def by_value(pair: ResolvedPair) -> Value:
    """Return the value of --by, from the side that has it; one without source: there is none."""
    begin = pair.begins[0].by
    return begin if begin.source else pair.end.by


def pair_facts(pair: ResolvedPair) -> PairFacts:
    """Return what a log's header says of a pair."""
    shown = dict(zip(("key0", "key1"), pair.begins[0].keys, strict=False))
    if pair.by:
        shown["by"] = by_value(pair)
    names = {
        name: {str(number): text for number, text in value.names.items()}
        for name, value in shown.items()
        if value.names
    }
    own = [
        f"{side.event}: {condition.text}"
        for side in (*pair.begins, pair.end)
        for condition in side.conditions
        if condition.text not in pair.variant.where
    ]
    return {
        "name": pair.pair.name,
        "begin": " or ".join(dict.fromkeys(side.event for side in pair.begins)),
        "end": pair.end.event,
        "keys": [
            begin.text if begin.text == end.text else f"{begin.text}|{end.text}"
            for begin, end in zip(pair.begins[0].keys, pair.end.keys, strict=True)
        ],
        "by": pair.by,
        "where": [*pair.variant.where, *own],
        "way": pair.way,
        "formats": {name: value.format for name, value in shown.items()},
        "names": names,
    }


def needs_symbols(pairs: Iterable[ResolvedPair]) -> bool:
    """Return whether a value of --by is the address of a function."""
    return any(pair.by and by_value(pair).format == SYMBOL for pair in pairs)


def function_names(
    pair: ResolvedPair, values: Iterable[int], symbols: LiveKernelSymbols | None
) -> dict[int, str]:
    """Return names of values of --by that are addresses of functions, of those that are known."""
    if symbols is None or not pair.by or by_value(pair).format != SYMBOL:
        return {}
    found = {value: symbols.find(value) for value in values}
    return {value: symbol.name for value, symbol in found.items() if symbol is not None}


def _device(dev: int) -> str:
    """Return a device's name with its numbers (major:minor), or these alone if it is not there."""
    numbers = dev_text(dev)
    try:
        return f"{os.path.basename(os.readlink(_DEVICES / numbers))} ({numbers})"
    except OSError:
        return numbers


def shown(value: Value, number: int, symbols: dict[int, str]) -> str:
    """Return a number as its value's format and names show it.

    symbols: names of functions by address, for values of the format SYMBOL.
    """
    if number in value.names:
        return f"{value.names[number]} ({number})"
    return value_text(number, value.format, _device, symbols.get)

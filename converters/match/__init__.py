# SPDX-License-Identifier: Apache-2.0
"""Events become bios and requests: one state machine, an event at a time, compiled.

The modules that `PARTS` of scripts/join_parts.py names are the parts of one compiled module,
`compiled`. They are Python with C's types (`lives`): functions of these become C functions,
classes marked `struct` C structs, numbers of `numbers` literals.
"""

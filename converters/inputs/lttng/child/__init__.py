# SPDX-License-Identifier: Apache-2.0
"""A program of its own, which reads CTF traces by babeltrace2's Python bindings."""

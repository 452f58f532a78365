# SPDX-License-Identifier: Apache-2.0
"""Processes that commands start: the recorder, and the loads of `biotrail demo`."""

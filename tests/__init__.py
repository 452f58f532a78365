# SPDX-License-Identifier: Apache-2.0
"""Tests of biotrail, and what they are made with."""

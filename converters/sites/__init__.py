# SPDX-License-Identifier: Apache-2.0
"""Chosen sites: pairs of events, and hits of followed objects as lives, spans and trees."""

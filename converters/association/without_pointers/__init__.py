# SPDX-License-Identifier: Apache-2.0
"""Identities for events that have no kernel pointers, by sector ranges."""

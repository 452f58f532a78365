# SPDX-License-Identifier: Apache-2.0
"""Bios, requests and events as Arrow tables."""

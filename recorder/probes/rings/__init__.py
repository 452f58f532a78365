# SPDX-License-Identifier: Apache-2.0
"""Rings in mapped memory: reading them, in an order that each machine keeps."""

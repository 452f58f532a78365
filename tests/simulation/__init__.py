# SPDX-License-Identifier: Apache-2.0
"""A simulated block layer: histories whose truth is known."""

# SPDX-License-Identifier: Apache-2.0
"""Lives of followed objects: many as one tree, functions by time, flame graphs."""

# SPDX-License-Identifier: Apache-2.0
"""What tests share: logs made by hand, loads, devices, readers of outputs."""

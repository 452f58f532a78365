# SPDX-License-Identifier: Apache-2.0
"""The recorded machine: devices, mounts, cgroups, clocks, and the recorder's own I/O."""

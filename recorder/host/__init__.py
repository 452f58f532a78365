# SPDX-License-Identifier: Apache-2.0
"""Facts of the recorded machine: devices, mounts, cgroups, clocks, the recorder's own I/O."""

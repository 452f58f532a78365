# SPDX-License-Identifier: Apache-2.0
"""Notes that a log holds beside events: call stacks, mounts, devices and cgroups that appear."""

# SPDX-License-Identifier: Apache-2.0
"""What several subcommands share: options, cuts, opening of inputs."""

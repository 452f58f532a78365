# SPDX-License-Identifier: Apache-2.0
"""The backend for kernels without BTF: its programs are compiled on the host by bcc."""

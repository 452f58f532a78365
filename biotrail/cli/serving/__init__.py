# SPDX-License-Identifier: Apache-2.0
"""What `biotrail view` serves to the Perfetto UI."""

# SPDX-License-Identifier: Apache-2.0
"""What `biotrail fleet` does: finds archives, reads them where the workers are, and adds up."""

# SPDX-License-Identifier: BSD-3-Clause
"""gradsync-audit: published numbers of scaling studies in, what is wrong in them out."""

"""Shared settings of the tests."""

from __future__ import annotations

import os

from hypothesis import settings

# Random search belongs on a developer's machine; a build must give the same verdict twice.
settings.register_profile("build", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("build")

from __future__ import annotations

from hypothesis import settings

# How long one example takes says nothing on a shared machine.
settings.register_profile("millstream", deadline=None)
settings.load_profile("millstream")

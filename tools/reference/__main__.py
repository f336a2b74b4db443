"""``python -m tools.reference docs/reference [--check]``: see ``pages``."""

from __future__ import annotations

import sys

from tools.reference.pages import main

sys.exit(main(sys.argv[1:]))

"""How much the crash tests try: an even sample in ``make test``, everything in ``make crash``."""

from __future__ import annotations

import os

THOROUGH = os.environ.get("GOQUEUE_THOROUGH") == "1"

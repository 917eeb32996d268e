"""What Ctrl-C does while nothing has begun: it ends the process with the status of an interrupt, and no traceback.

Nothing heavy is imported here: this comes before everything else.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

EXIT_INTERRUPTED = 130


def leave_at_once() -> None:
    """From now on. Where Ctrl-C is ignored, as in the background of a script, it stays so."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def raise_again() -> None:
    """A command begins: it may have something to put back, and hears of Ctrl-C as a ``KeyboardInterrupt``."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(_number: int, _frame: FrameType | None) -> None:
    # Raising would not do: an import may swallow it, or print it.
    if sys.argv[1:2] == ["produce"]:
        os.write(2, b"interrupted, nothing was sent\n")
    os._exit(EXIT_INTERRUPTED)

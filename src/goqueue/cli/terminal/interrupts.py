"""Ctrl-C before a command has started: exits with the status of an interrupt and without a traceback.

Imports nothing heavy, because it is loaded before everything else.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

EXIT_INTERRUPTED = 130


def exit_on_interrupt() -> None:
    """Exit on Ctrl-C from now on. Where SIGINT is ignored, as for a script's background job, it stays ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit)


def raise_again() -> None:
    """Restore ``KeyboardInterrupt`` for Ctrl-C: a command that is running may have cleaning up to do."""
    if signal.getsignal(signal.SIGINT) is _exit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit(_number: int, _frame: FrameType | None) -> None:
    # An exception would not do: code that is being imported may swallow or print it.
    if sys.argv[1:2] == ["produce"]:
        os.write(2, b"interrupted, nothing was sent\n")
    os._exit(EXIT_INTERRUPTED)

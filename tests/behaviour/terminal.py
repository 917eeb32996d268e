"""A command in a terminal of a given size: what it draws is read while it runs, keys are pressed, the size changes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
from types import TracebackType
from typing import Any, Self

from behaviour.waiting import until

_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


class Terminal:
    """Runs ``command`` in it. ``seen`` is everything that came so far, ``text`` the same without colours."""

    def __init__(self, command: list[str], width: int = 80, height: int = 24, **environ: str) -> None:
        self.ours, self.theirs = pty.openpty()
        self.resize(width, height)
        dropped = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        self.modes = self._modes()
        # Their side stays open here: its modes are looked at when the command has ended.
        self.running = subprocess.Popen(
            command,
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            env=kept | {"TERM": "xterm-256color"} | environ,
            start_new_session=True,
        )
        self.seen = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.running.poll() is None:
            self.running.kill()
        self.running.wait()
        os.close(self.theirs)
        os.close(self.ours)

    @property
    def text(self) -> str:
        return _SEQUENCE.sub("", self.seen)

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def interrupt(self) -> None:
        """As Ctrl-C does: it goes to the command alone, which has a session of its own."""
        self.running.send_signal(signal.SIGINT)

    def shows(self, wanted: str) -> None:
        """Wait until it has drawn this, behind what was forgotten."""
        until(lambda: self._read() and wanted in self.text)

    def forget(self) -> None:
        self._read()
        self.seen = ""

    def status(self) -> int:
        """When it has ended, with everything read."""
        until(lambda: self._read() and self.running.poll() is not None)
        self._read()
        return self.running.returncode

    def is_as_before(self) -> bool:
        """Whether keys are treated as they were before the command ran."""
        return self._modes() == self.modes

    def _modes(self) -> list[Any]:
        return termios.tcgetattr(self.theirs)

    def _read(self) -> bool:
        while select.select([self.ours], [], [], 0)[0]:
            self.seen += os.read(self.ours, 65_536).decode(errors="replace")
        return True

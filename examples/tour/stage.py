"""What the tour prints and how it checks: headlines, figures, commands as a user types them, a ✓ for each check."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from goqueue import Consumer, ReceivedMessage

WIDTH = 100
PATIENCE_S = 120.0
LOOK_EVERY_S = 0.02
_INDENT = 2


class NotSo(Exception):
    """What the tour shows is not so."""


class Stage:
    """Draws on a terminal in colours, into a pipe as plain text, and counts what was checked."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._console.width = min(WIDTH, self._console.width) if self._console.is_terminal else WIDTH
        self.checked = 0
        self.chapters = 0

    def title(self, title: str, text: str) -> None:
        self._console.print(f"[bold]{title}[/]  [dim]{text}[/]")

    def chapter(self, title: str, text: str) -> None:
        """A headline, and what happens here and why that matters."""
        self.chapters += 1
        self._console.print(f"\n[bold cyan]{self.chapters}  {title}[/]")
        self._put(Text(text, style="dim"))

    def say(self, text: str) -> None:
        """A line of figures; may have rich's markup."""
        self._put(Text.from_markup(text))

    def so(self, condition: bool, sentence: str, otherwise: str = "") -> None:
        """Print that the sentence is so, or end the tour if it is not."""
        if not condition:
            raise NotSo(otherwise or f"it is not so that {sentence}")
        self.checked += 1
        self._put(Text.assemble(("✓ ", "bold green"), sentence))

    def table(self, titles: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str]) -> None:
        """``numbers`` are the titles of columns that are set from the right."""
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for title in titles:
            table.add_column(title, no_wrap=True, justify="right" if title in numbers else "left")
        for row in rows:
            table.add_row(*row)
        self._put(table)

    def lines(self, lines: Sequence[str], style: str = "") -> None:
        """As they are, however long."""
        for line in lines:
            self._console.print(Text(" " * _INDENT + line, style=style), soft_wrap=True)

    def command(self, typed: str) -> None:
        """A command as a user types it; ``printed`` is what it prints."""
        self._put(Text.assemble(("$ ", "dim"), (typed, "bold")))

    def printed(self, told: str) -> None:
        for line in filter(str.strip, told.splitlines()):
            bar = line.find("| ")
            # What is behind the bar of a trace stays behind it; a table stays as wide as it is.
            indent = " " * (bar + 4)
            self.lines([line] if bar < 0 else textwrap.wrap(line, WIDTH - _INDENT, subsequent_indent=indent))

    def failed(self, error: Exception) -> None:
        self._console.print(Text.assemble(("\n✗ This should not be: ", "bold red"), str(error)), soft_wrap=True)

    def end(self, text: str) -> None:
        self._console.print()
        self._put(Text.from_markup(text), indent=0)

    def _put(self, what: Text | Table, indent: int = _INDENT) -> None:
        """Set in from the left, and without spaces at the ends of lines, which a pipe would keep."""
        with self._console.capture() as captured:
            self._console.print(what, width=self._console.width - indent)
        for line in captured.get().splitlines():
            self._console.file.write(f"{' ' * indent}{line.rstrip()}\n")


def wait_until(is_so: Callable[[], bool], what: str, within_s: float = PATIENCE_S) -> None:
    """Wait for a condition; if it does not come true that is a finding."""
    deadline = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > deadline:
            raise NotSo(f"after {within_s:.0f} s it is still not so that {what}")
        time.sleep(LOOK_EVERY_S)


def received(consumer: Consumer, what: str) -> ReceivedMessage:
    """The next message that a consumer gets; if none comes that is a finding."""
    messages = consumer.poll(1, timeout=PATIENCE_S)
    if not messages:
        raise NotSo(f"{what} did not come within {PATIENCE_S:.0f} s")
    message: ReceivedMessage = messages[0]
    return message

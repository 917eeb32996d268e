"""The entry point of the ``goqueue`` command: hears Ctrl-C before it loads the commands, which takes a while."""

from __future__ import annotations

from goqueue.cli.terminal import interrupts


def main() -> None:
    """Run the command that the arguments name."""
    interrupts.leave_at_once()
    from goqueue.cli.app import app

    app()

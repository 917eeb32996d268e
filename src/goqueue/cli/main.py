"""Entry point of the ``goqueue`` command. Handles Ctrl-C before importing the commands, because the import is slow."""

from __future__ import annotations

from goqueue.cli.terminal import interrupts


def main() -> None:
    """Run the command given by the arguments."""
    interrupts.exit_on_interrupt()
    from goqueue.cli.app import app

    app()

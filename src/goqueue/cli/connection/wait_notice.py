"""Prints notices on standard error when a broker stops answering and when it answers again."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread, Timer

from goqueue.cli.connection.broker_http import BrokerHttp
from goqueue.cli.terminal.progress import print_notice
from goqueue.model.clock import NANOS_PER_SECOND
from goqueue.model.errors import GoQueueError
from goqueue.model.units import format_instant_ns
from goqueue.observe.logs import escape

_NOTICE_AFTER_S = 2.0
_HEALTH_TIMEOUT_S = 1.0


class _Outage:
    """Prints one notice when an outage begins and one when it ends, however often it is noticed."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._is_announced = False

    def announce(self, since: str, what_now: str) -> None:
        self._announce_once(f"no answer from {self._server} {since}; {what_now}")

    def announce_problems(self, problems: Sequence[str], since: str, what_now: str) -> None:
        """Print that the broker answers but does not do what it was asked for, with the problems it reports."""
        why = f": {'; '.join(map(escape, problems))}" if problems else ""
        self._announce_once(f"{self._server} answers, and has not done this {since}{why}; {what_now}")

    def _announce_once(self, remarked: str) -> None:
        if not self._is_announced:
            self._is_announced = True
            print_notice(remarked)

    def announce_end(self) -> None:
        if self._is_announced:
            self._is_announced = False
            print_notice(f"{self._server} answers; going on")


def _problems_at(server: str) -> Sequence[str] | None:
    """The problems that the broker reports about itself; ``None`` if it does not answer."""
    try:
        found = BrokerHttp(server, _HEALTH_TIMEOUT_S).get("/health")
    except GoQueueError:
        return None
    return [str(each) for each in found.get("problems", ())]


class OutageNotices:
    """Notices for the calls of one command, made one at a time. An outage over several calls is announced once."""

    def __init__(self, server: str, timeout: str, *, is_enabled: bool) -> None:
        self._server = server
        self._outage = _Outage(server)
        self._timeout = timeout
        self._is_enabled = is_enabled

    @contextmanager
    def while_calling(self, when_interrupted: str) -> Iterator[None]:
        """Call the broker in this block. ``when_interrupted`` says what Ctrl-C does during it."""
        if not self._is_enabled:
            yield
            return
        timer = Timer(_NOTICE_AFTER_S, self._announce, [when_interrupted])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            # The timer's thread may be printing.
            timer.join()
        self._outage.announce_end()

    def _announce(self, when_interrupted: str) -> None:
        since = f"for {_NOTICE_AFTER_S:g} s"
        limit = f"up to {self._timeout} (--timeout). Ctrl-C is safe: {when_interrupted}"
        problems = _problems_at(self._server)
        if problems is None:
            self._outage.announce(since, f"waiting for it, {limit}")
        else:
            self._outage.announce_problems(problems, since, f"trying again, {limit}")


@contextmanager
def announce_outages(server: str, *, is_enabled: bool) -> Iterator[None]:
    """Announce outages while the block waits for messages indefinitely. Silence may mean that no messages come or that
    the broker is gone, so the broker is checked now and then."""
    if not is_enabled:
        yield
        return
    done = Event()
    asking = Thread(target=_check_repeatedly, args=(server, done), daemon=True)
    asking.start()
    try:
        yield
    finally:
        # The thread may be waiting for an answer; it is not joined.
        done.set()


def _check_repeatedly(server: str, done: Event) -> None:
    broker, outage = BrokerHttp(server, _NOTICE_AFTER_S), _Outage(server)
    answered_at: str | None = None
    while not done.is_set():
        asked_at = format_instant_ns(time.time_ns() // NANOS_PER_SECOND * NANOS_PER_SECOND)
        try:
            broker.get("/version")
        except GoQueueError:
            # A broker that never answered may be reachable over gRPC alone.
            if answered_at is not None and not done.is_set():
                outage.announce(f"since {answered_at}", "waiting for it. Ctrl-C ends it")
        else:
            answered_at = asked_at
            if not done.is_set():
                outage.announce_end()
        done.wait(_NOTICE_AFTER_S)

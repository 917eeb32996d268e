"""Says that a broker is waited for while it does not answer, and that it goes on when it does."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread, Timer

from goqueue.cli.connection.broker_http import BrokerHttp
from goqueue.cli.terminal.progress import remark
from goqueue.model.errors import GoQueueError
from goqueue.model.ports import NANOS_PER_SECOND
from goqueue.model.units import format_instant_ns
from goqueue.observe.logs import escape

_PATIENCE_S = 2.0
_ASKED_WITHIN_S = 1.0


class _Outage:
    """Told once when it begins and once when it is over, however often somebody notices."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._is_told = False

    def tell(self, since: str, what_now: str) -> None:
        self._tell_once(f"no answer from {self._server} {since}; {what_now}")

    def tell_of_problems(self, problems: Sequence[str], since: str, what_now: str) -> None:
        """Of a broker that answers, and does not do what it is asked for."""
        why = f": {'; '.join(map(escape, problems))}" if problems else ""
        self._tell_once(f"{self._server} answers, and has not done this {since}{why}; {what_now}")

    def _tell_once(self, remarked: str) -> None:
        if not self._is_told:
            self._is_told = True
            remark(remarked)

    def is_over(self) -> None:
        if self._is_told:
            self._is_told = False
            remark(f"{self._server} answers; going on")


def _problems_at(server: str) -> Sequence[str] | None:
    """What a broker says is wrong with it; ``None`` if it says nothing."""
    try:
        found = BrokerHttp(server, _ASKED_WITHIN_S).get("/health")
    except GoQueueError:
        return None
    return [str(each) for each in found.get("problems", ())]


class Waiting:
    """For the calls of one command, one at a time. An outage is told once, however many calls it lasts."""

    def __init__(self, server: str, timeout: str, *, is_told: bool) -> None:
        self._server = server
        self._outage = _Outage(server)
        self._timeout = timeout
        self._is_told = is_told

    @contextmanager
    def answered(self, when_interrupted: str) -> Iterator[None]:
        """In this block the broker is asked. ``when_interrupted``: what Ctrl-C does meanwhile."""
        if not self._is_told:
            yield
            return
        timer = Timer(_PATIENCE_S, self._tell, [when_interrupted])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            # It may be in the middle of telling.
            timer.join()
        self._outage.is_over()

    def _tell(self, when_interrupted: str) -> None:
        since = f"for {_PATIENCE_S:g} s"
        limit = f"up to {self._timeout} (--timeout). Ctrl-C is safe: {when_interrupted}"
        problems = _problems_at(self._server)
        if problems is None:
            self._outage.tell(since, f"waiting for it, {limit}")
        else:
            self._outage.tell_of_problems(problems, since, f"trying again, {limit}")


@contextmanager
def outages_told(server: str, *, is_told: bool) -> Iterator[None]:
    """In this block somebody waits for messages for as long as it takes. Silence may mean that there are none, or that
    nobody is there: so the broker is asked now and then whether it is."""
    if not is_told:
        yield
        return
    done = Event()
    asking = Thread(target=_keep_asking, args=(server, done), daemon=True)
    asking.start()
    try:
        yield
    finally:
        # It may be in the middle of a question, and is not waited for.
        done.set()


def _keep_asking(server: str, done: Event) -> None:
    broker, outage = BrokerHttp(server, _PATIENCE_S), _Outage(server)
    answered_at: str | None = None
    while not done.is_set():
        asked_at = format_instant_ns(time.time_ns() // NANOS_PER_SECOND * NANOS_PER_SECOND)
        try:
            broker.get("/version")
        except GoQueueError:
            # One that was never heard of may be reached over gRPC alone.
            if answered_at is not None and not done.is_set():
                outage.tell(f"since {answered_at}", "waiting for it. Ctrl-C ends it")
        else:
            answered_at = asked_at
            if not done.is_set():
                outage.is_over()
        done.wait(_PATIENCE_S)

"""Asks a broker over HTTP, on the standard library alone: a command that asks once needs no more."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Timer
from typing import Any
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import msgspec

from goqueue.cli.terminal.hints import at_a_terminal
from goqueue.model.config import Config
from goqueue.model.errors import BrokerUnavailable, InvalidRequest, error_from
from goqueue.model.fields import did_you_mean, shown
from goqueue.observe.logs import escape

_MOST_SHOWN = 200
Parameters = Mapping[str, str | int]


class NoBroker(BrokerUnavailable):
    """Nothing answered, or nothing that answers as a broker does."""

    remedy = (
        "Start a broker with 'goqueue serve', "
        "or say where it is: --server http://HOST:PORT, the variable GOQUEUE_SERVER, or 'goqueue context use NAME'."
    )


class NoSuchHost(NoBroker):
    """The same where a name was given that could be a context's, and is none."""

    remedy = "'goqueue context list' shows the names that you gave to brokers; or write --server http://HOST:PORT."


class EmptyName(InvalidRequest):
    """A name is empty: what was to be one thing would be all of them."""

    remedy = "Give the name. Perhaps a variable of a script is not set."


class NotAServer(InvalidRequest):
    """The address cannot be one of a broker."""

    remedy = "Write it like http://127.0.0.1:8080."


class _Refusal(msgspec.Struct):
    """The body of every error."""

    error: str
    code: str


def default_server() -> str:
    """Where a broker listens that nobody told otherwise."""
    settings = Config().http
    return f"http://{settings.host}:{settings.port}"


def host_of(server: str) -> str:
    """Of an address that was looked at: one that cannot be a broker's is refused."""
    return _parsed(server).hostname or ""


@dataclass(frozen=True, slots=True)
class BrokerHttp:
    """``server`` is a URL, or HOST:PORT. Every call is answered within ``timeout_s``, or fails."""

    server: str
    timeout_s: float

    def get(self, path: str, parameters: Parameters | None = None) -> Any:
        return self.send("GET", path.strip("/").split("/"), parameters)

    def send(
        self,
        method: str,
        path: Sequence[str],
        parameters: Parameters | None = None,
        body: Mapping[str, object] | None = None,
    ) -> Any:
        """A good answer, as JSON has it; a refusal is raised as the error that the broker names.

        ``path`` comes in its parts: a name in it may have any letter, and is not empty.
        """
        status, answer, tried = self._asked(method, path, parameters, body)
        try:
            if 200 <= status < 300:
                return msgspec.json.decode(answer)
            refusal = msgspec.json.decode(answer, type=_Refusal)
        except (msgspec.DecodeError, RecursionError):
            said = shown(answer[:_MOST_SHOWN].decode(errors="replace"))
            raise NoBroker(
                f"what listens at {self.server} is no broker: it answered {tried} with {status}, {said}"
            ) from None
        raise at_a_terminal(error_from(escape(refusal.code), escape(refusal.error)))

    def text(self, path: str, parameters: Parameters | None = None) -> tuple[int, str]:
        """The status and the page that is there, whatever they are: figures, say, or why the broker is not ready."""
        status, answer, _ = self._asked("GET", path.strip("/").split("/"), parameters, None)
        return status, answer.decode(errors="replace")

    def _asked(
        self, method: str, path: Sequence[str], parameters: Parameters | None, body: Mapping[str, object] | None
    ) -> tuple[int, bytes, str]:
        """The status, the answer, and what was asked in words."""
        url = _parsed(self.server)
        if not all(path):
            raise EmptyName("a name is empty")
        target = "/".join([url.path.rstrip("/"), *(quote(part, safe="") for part in path)])
        if parameters:
            target += "?" + urlencode(parameters)
        tried = f"{method} {target[:_MOST_SHOWN]}"
        sent = None if body is None else msgspec.json.encode(body)
        return *self._ask(url, method, target, sent, tried), tried

    def _ask(self, url: SplitResult, method: str, target: str, body: bytes | None, tried: str) -> tuple[int, bytes]:
        connection = connection_to(url, self.timeout_s)
        try:
            connection.connect()
        except (OSError, UnicodeError) as error:
            connection.close()
            told = f"no broker can be reached at {self.server}: {why(error)} ({tried})"
            if slip := _no_context(self.server):
                raise NoSuchHost(f"{told}; {slip}") from None
            raise NoBroker(told) from None
        is_late = Event()

        def give_up() -> None:
            # Said first: whoever waits for the answer notices at once that there is none.
            is_late.set()
            hang_up(connection.sock)

        # A timeout of the socket counts from every byte, this one counts for the whole answer.
        watchdog = Timer(self.timeout_s, give_up)
        watchdog.daemon = True
        watchdog.start()
        try:
            headers = {"Accept": "application/json"}
            if body is not None:
                headers["Content-Type"] = "application/json"
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            if is_late.is_set() or isinstance(error, TimeoutError):
                raise NoBroker(f"{self.server} did not answer {tried} within {self.timeout_s:g} s") from None
            if isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
                raise NoBroker(f"what listens at {self.server} is no broker: it does not speak HTTP") from None
            raise NoBroker(f"the connection to {self.server} broke before {tried} was answered: {why(error)}") from None
        finally:
            watchdog.cancel()
            connection.close()


def _parsed(server: str) -> SplitResult:
    try:
        url = urlsplit(server if "://" in server else f"http://{server}")
        is_good = url.scheme in ("http", "https") and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        is_good = False
    if not is_good or server != server.strip() or not server.isprintable() or " " in server:
        raise NotAServer(f"{shown(server)} is not the address of a broker")
    if url.username is not None or url.query or url.fragment:
        raise NotAServer("the address of a broker has a scheme, a host and a port, and no user, query or fragment")
    return url


def _no_context(server: str) -> str:
    """What to say of an address that may be a slip in the name of a context; nothing if it can be none."""
    from goqueue.cli.connection import contexts

    if not contexts.can_be_name(server):
        return ""
    with suppress(InvalidRequest):
        known = contexts.load().contexts
        if server not in known:
            return f"nor is there a context {shown(server)}{did_you_mean(server, known)}"
    return ""


def connection_to(url: SplitResult, timeout_s: float) -> http.client.HTTPConnection:
    # The port is given in any case: an IPv6 address has colons of its own.
    host = url.hostname or ""
    if url.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, url.port or 443, timeout=timeout_s, context=context)
    return http.client.HTTPConnection(host, url.port or 80, timeout=timeout_s)


def hang_up(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__

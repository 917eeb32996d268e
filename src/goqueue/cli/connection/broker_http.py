"""HTTP client for single calls to a broker, on the standard library alone to keep start-up fast."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Timer
from typing import Any, TypeVar
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import msgspec

from goqueue.cli.connection import contexts
from goqueue.model.config import Config
from goqueue.model.errors import BrokerUnavailable, InvalidRequest, error_from
from goqueue.model.fields import did_you_mean, shown
from goqueue.observe.logs import escape

NOT_UNDERSTOOD = "the answer is not one of a broker that this command knows"
_MOST_SHOWN = 200
Answer = TypeVar("Answer")
Parameters = Mapping[str, str | int]


class NoBroker(BrokerUnavailable):
    """Nothing answered, or the answer is not that of a broker."""

    remedy = (
        "Start a broker with 'goqueue serve', "
        "or say where it is: --server http://HOST:PORT, the variable GOQUEUE_SERVER, or 'goqueue context use NAME'."
    )


class NoSuchHost(NoBroker):
    """No broker answered at a host whose name could also be a mistyped context."""

    remedy = "'goqueue context list' shows the names that you gave to brokers; or write --server http://HOST:PORT."


class EmptyName(InvalidRequest):
    """A name is empty. In a path, an empty name would address all things instead of one."""

    remedy = "Give the name. Perhaps a variable of a script is not set."


class InvalidAddress(InvalidRequest):
    """The text cannot be a broker's address."""

    remedy = "Write it like http://127.0.0.1:8080."


class Refusal(msgspec.Struct):
    """The body of every error response."""

    error: str
    code: str


def default_server() -> str:
    """The URL of a broker with the default configuration."""
    settings = Config().http
    return f"http://{settings.host}:{settings.port}"


def host_of(server: str) -> str:
    """The host in a broker's address. Raises ``InvalidAddress`` if it cannot be one."""
    return parse_address(server).hostname or ""


@dataclass(frozen=True, slots=True)
class BrokerHttp:
    """HTTP client of one broker. ``server`` is a URL or HOST:PORT. Every call returns or fails within ``timeout_s``."""

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
        """Return the decoded JSON of a successful response; raise the error that the broker names otherwise.

        ``path`` is given in segments: a name in it may have any characters, and must not be empty.
        """
        status, answer, description = self._request(method, path, parameters, body)
        try:
            if 200 <= status < 300:
                return msgspec.json.decode(answer)
            refusal = msgspec.json.decode(answer, type=Refusal)
        except (msgspec.DecodeError, RecursionError):
            excerpt = shown(answer[:_MOST_SHOWN].decode(errors="replace"))
            raise NoBroker(
                f"what listens at {self.server} is no broker: it answered {description} with {status}, {excerpt}"
            ) from None
        raise error_from(escape(refusal.code), escape(refusal.error))

    def text(self, path: str, parameters: Parameters | None = None) -> tuple[int, str]:
        """The status and text of a page, whatever they are: for metrics, or a readiness report."""
        status, answer, _ = self._request("GET", path.strip("/").split("/"), parameters, None)
        return status, answer.decode(errors="replace")

    def _request(
        self, method: str, path: Sequence[str], parameters: Parameters | None, body: Mapping[str, object] | None
    ) -> tuple[int, bytes, str]:
        """Send the request; return the status, the body, and a description of the request for error messages."""
        url = parse_address(self.server)
        if not all(path):
            raise EmptyName("a name is empty")
        target = "/".join([url.path.rstrip("/"), *(quote(part, safe="") for part in path)])
        if parameters:
            target += "?" + urlencode(parameters)
        description = f"{method} {target[:_MOST_SHOWN]}"
        sent = None if body is None else msgspec.json.encode(body)
        return *self._exchange(url, method, target, sent, description), description

    def _exchange(
        self, url: SplitResult, method: str, target: str, body: bytes | None, description: str
    ) -> tuple[int, bytes]:
        connection = connection_to(url, self.timeout_s)
        try:
            connection.connect()
        except (OSError, UnicodeError) as error:
            connection.close()
            message = f"no broker can be reached at {self.server}: {reason_of(error)} ({description})"
            if slip := _no_context(self.server):
                raise NoSuchHost(f"{message}; {slip}") from None
            raise NoBroker(message) from None
        is_late = Event()

        def give_up() -> None:
            # Set before hanging up: the thread that waits for the answer wakes at once.
            is_late.set()
            shut_down(connection.sock)

        # The socket's timeout restarts with every byte; this timer limits the whole answer.
        watchdog = Timer(self.timeout_s, give_up)
        watchdog.daemon = True
        watchdog.start()
        try:
            return call_on(connection, method, target, body)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, http.client.BadStatusLine) and not (is_late.is_set() or isinstance(error, OSError)):
                raise NoBroker(f"what listens at {self.server} is no broker: it does not speak HTTP") from None
            raise self._no_answer(description, error, is_late=is_late.is_set()) from None
        finally:
            watchdog.cancel()
            connection.close()

    def _no_answer(self, description: str, error: Exception, *, is_late: bool = False) -> NoBroker:
        if is_late or isinstance(error, TimeoutError):
            return NoBroker(f"{self.server} did not answer {description} within {self.timeout_s:g} s")
        return NoBroker(f"the connection to {self.server} broke before {description} was answered: {reason_of(error)}")


def convert(answer: Any, kind: type[Answer]) -> Answer:
    """Convert an answer to its type, or raise ``NoBroker``."""
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise NoBroker(f"{NOT_UNDERSTOOD}: {error}") from None


def parse_address(server: str) -> SplitResult:
    """Parse a broker's address. Raises ``InvalidAddress`` if it cannot be one."""
    try:
        url = urlsplit(server if "://" in server else f"http://{server}")
        is_good = url.scheme in ("http", "https") and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        is_good = False
    if not is_good or server != server.strip() or not server.isprintable() or " " in server:
        raise InvalidAddress(f"{shown(server)} is not the address of a broker")
    if url.username is not None or url.query or url.fragment:
        raise InvalidAddress("the address of a broker has a scheme, a host and a port, and no user, query or fragment")
    return url


def _no_context(server: str) -> str:
    """A hint for an address that may be a mistyped context name; empty if it cannot be one."""
    if not contexts.can_be_name(server):
        return ""
    with suppress(InvalidRequest):
        known = contexts.load().contexts
        if server not in known:
            return f"nor is there a context {shown(server)}{did_you_mean(server, known)}"
    return ""


def connection_to(url: SplitResult, timeout_s: float) -> http.client.HTTPConnection:
    # The port is always passed: ``http.client`` would search an IPv6 address for it.
    host = url.hostname or ""
    if url.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, url.port or 443, timeout=timeout_s, context=context)
    return http.client.HTTPConnection(host, url.port or 80, timeout=timeout_s)


def call_on(connection: http.client.HTTPConnection, method: str, target: str, body: bytes | None) -> tuple[int, bytes]:
    headers = {"Accept": "application/json"} | ({} if body is None else {"Content-Type": "application/json"})
    connection.request(method, target, body, headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def shut_down(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def reason_of(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__

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

from goqueue.model.config import Config
from goqueue.model.errors import BrokerUnavailable, InvalidRequest, error_from
from goqueue.model.fields import shown
from goqueue.observe.logs import escape

SERVER_VARIABLE = "GOQUEUE_SERVER"
_MOST_SHOWN = 200
Parameters = Mapping[str, str | int]


class NoBroker(BrokerUnavailable):
    """Nothing answered, or nothing that answers as a broker does."""

    remedy = (
        "Start a broker with 'goqueue serve', "
        f"or say where it is: --server http://HOST:PORT, or the variable {SERVER_VARIABLE}."
    )


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

        ``path`` comes in its parts: a name in it may have any letter.
        """
        url = _parsed(self.server)
        target = "/".join([url.path.rstrip("/"), *(quote(part, safe="") for part in path)])
        if parameters:
            target += "?" + urlencode(parameters)
        tried = f"{method} {target[:_MOST_SHOWN]}"
        status, answer = self._ask(url, method, target, None if body is None else msgspec.json.encode(body), tried)
        try:
            if status == 200:
                return msgspec.json.decode(answer)
            refusal = msgspec.json.decode(answer, type=_Refusal)
        except (msgspec.DecodeError, RecursionError):
            said = shown(answer[:_MOST_SHOWN].decode(errors="replace"))
            raise NoBroker(
                f"what listens at {self.server} is no broker: it answered {tried} with {status}, {said}"
            ) from None
        raise error_from(escape(refusal.code), escape(refusal.error))

    def _ask(self, url: SplitResult, method: str, target: str, body: bytes | None, tried: str) -> tuple[int, bytes]:
        connection = _connection(url, self.timeout_s)
        try:
            connection.connect()
        except (OSError, UnicodeError) as error:
            connection.close()
            raise NoBroker(f"no broker can be reached at {self.server}: {_why(error)} ({tried})") from None
        is_late = Event()

        def give_up() -> None:
            # Said first: whoever waits for the answer notices at once that there is none.
            is_late.set()
            _hang_up(connection.sock)

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
            raise NoBroker(
                f"the connection to {self.server} broke before {tried} was answered: {_why(error)}"
            ) from None
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


def _connection(url: SplitResult, timeout_s: float) -> http.client.HTTPConnection:
    # The port is given in any case: an IPv6 address has colons of its own.
    host = url.hostname or ""
    if url.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, url.port or 443, timeout=timeout_s, context=context)
    return http.client.HTTPConnection(host, url.port or 80, timeout=timeout_s)


def _hang_up(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__

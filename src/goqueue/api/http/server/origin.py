"""Who may talk to the broker out of a browser: its own pages, and nobody in their name.

A page of another site can send requests to any address. And whoever owns a name can let it point to another address
after a page came from it (DNS rebinding): then the browser takes the broker for that page's own site. Both are told by
headers that a browser writes itself. Clients that are no browsers send none of these but ``Host``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address

from goqueue.model.config import HttpConfig
from goqueue.model.errors import CrossOrigin, GoQueueError, HostNotAllowed

Headers = Mapping[bytes, bytes]

_PORT = re.compile(r":\d{0,5}\Z")
_KNOWN = 1_000
"""How many hosts are kept that were found to be right."""
_LONGEST_KNOWN = 255
"""A name in DNS is no longer; one that is looked up each time may be."""
_OWN = {b"same-origin", b"none"}
"""What ``Sec-Fetch-Site`` says of the broker's own pages, and of what a person typed."""
_PAGES = {"/", "/docs", "/v1", "/v1/", "/v1/docs"}
"""Where another site may send people: these do no work, and show nothing of what the broker holds."""


class Origins:
    """Which hosts a request may be for, and which pages it may come from."""

    def __init__(self, config: HttpConfig) -> None:
        names = [name.strip().lower().removesuffix(".") for name in config.allowed_hosts.split(",")]
        self._everything = "*" in names
        self._names = {"localhost", config.host.lower(), *names} - {""}
        self._below = (".localhost", *(name for name in names if name.startswith(".") and len(name) > 1))
        self._known: set[bytes] = set()

    def refusal(self, method: str, path: str, headers: Headers) -> GoQueueError | None:
        """Why a request is refused for where it goes to or comes from, if it is."""
        return self._wrong_host(headers.get(b"host")) or _foreign_page(method, path, headers)

    def _wrong_host(self, host: bytes | None) -> GoQueueError | None:
        """HTTP/1.0 knows requests without a host; no browser sends these."""
        if host is None or host in self._known:
            return None
        if not self._is_allowed(host.decode("latin-1")):
            shown = host[:100].decode("ascii", "replace")
            return HostNotAllowed(
                f"the request is for the host {shown!r}, and this broker answers to localhost, to addresses and to "
                "the names in http.allowed_hosts; add the name there (GOQUEUE_HTTP_ALLOWED_HOSTS) if it is this "
                "broker's"
            )
        if len(self._known) < _KNOWN and len(host) <= _LONGEST_KNOWN:
            self._known.add(host)
        return None

    def _is_allowed(self, host: str) -> bool:
        if self._everything:
            return True
        name = _PORT.sub("", host).lower()
        if name.removesuffix(".") in self._names or name.removesuffix(".").endswith(self._below):
            return True
        # No page comes from an address but that of the host that has it: only names can be pointed elsewhere.
        try:
            ip_address(name.removeprefix("[").removesuffix("]") if name.startswith("[") else name)
        except ValueError:
            return False
        return True


def _foreign_page(method: str, path: str, headers: Headers) -> GoQueueError | None:
    """Why a request is refused that a browser sends for another site's page, if it does.

    Reading is refused as well: such a page does not see the answer, but a backup is begun and messages are handed out.
    """
    site = headers.get(b"sec-fetch-site")
    if site is not None and site not in _OWN:
        is_link = method == "GET" and headers.get(b"sec-fetch-mode") == b"navigate"
        if not (is_link and path in _PAGES and headers.get(b"sec-fetch-dest") == b"document"):
            return CrossOrigin(f"requests from other sites' pages are refused (Sec-Fetch-Site: {_shown(site)})")
    origin = headers.get(b"origin")
    if origin is None or origin.partition(b"//")[2] == headers.get(b"host"):
        return None
    return CrossOrigin(f"requests from pages of {_shown(origin)} are refused")


def _shown(value: bytes) -> str:
    return value[:100].decode(errors="replace")

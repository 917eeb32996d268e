"""Why a port cannot be taken, and what to do about it."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from goqueue.api.listening import CannotListen, listening_socket


def test_a_port_that_is_in_use_names_the_option_that_chooses_another() -> None:
    with listening_socket("127.0.0.1", 0, "HTTP", "--port") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen) as raised:
            listening_socket("127.0.0.1", port, "gRPC", "--grpc-port")
    assert f"127.0.0.1:{port} for gRPC: another program listens there" in str(raised.value)
    assert "choose another port with --grpc-port" in str(raised.value)
    # The general hint is about lines of a configuration.
    assert raised.value.remedy == ""


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_of_another_machine_is_about_the_host_and_not_about_the_port(host: str) -> None:
    with pytest.raises(CannotListen, match=r"such .*--host.* 127\.0\.0\.1 or 0\.0\.0\.0"):
        listening_socket(host, 0, "HTTP", "--port")


@pytest.mark.parametrize(
    ("number", "told"),
    [(errno.EACCES, "ports below 1024 are the system's; choose one with --port"), (errno.ENOBUFS, "--port or --host")],
)
def test_other_causes_have_words_of_their_own(monkeypatch: pytest.MonkeyPatch, number: int, told: str) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket, "create_server", refuse)
    with pytest.raises(CannotListen, match=told):
        listening_socket("127.0.0.1", 80, "HTTP", "--port")

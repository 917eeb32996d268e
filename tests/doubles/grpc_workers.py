"""Threads that talk to a broker over gRPC and live on while it is killed and comes back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

import grpc

from goqueue.wire.proto import goqueue_pb2_grpc as pb_grpc

PATIENCE_S = 90.0


class Complaints(Protocol):
    """Where a worker writes down what should not have happened."""

    changed: threading.Condition
    problems: list[str]


class Calls:
    """The broker over gRPC, through restarts on the same port."""

    def __init__(self, address: str) -> None:
        options = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 100)]
        self.channel = grpc.insecure_channel(address, options=options)
        self.groups = pb_grpc.GroupsStub(self.channel)
        self.messages = pb_grpc.MessagesStub(self.channel)
        self.topics = pb_grpc.TopicsStub(self.channel)
        self.delays = pb_grpc.DelaysStub(self.channel)


class Workers:
    """Threads that repeat something until they are told to end; calls to a dead broker fail, and are tried again."""

    def __init__(self, ledger: Complaints) -> None:
        self._ledger = ledger
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, step: Callable[[], object]) -> None:
        thread = threading.Thread(target=self._run, args=(step,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, step: Callable[[], object]) -> None:
        while not self._ending.is_set():
            try:
                step()
            except grpc.RpcError as error:
                if error.code() not in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}:
                    self._complain(f"{error.code()}: {error.details()}")
                self._ending.wait(0.02)
            except Exception as error:
                self._complain(repr(error))

    def _complain(self, problem: str) -> None:
        with self._ledger.changed:
            self._ledger.problems.append(problem)
            self._ledger.changed.notify_all()
        self._ending.set()

    def end(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

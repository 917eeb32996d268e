"""Admission of operations: the one check that every request of every protocol passes before any work is done.

``Gate.admit`` is where permission, quota and audit belong when they come. Today it checks that the broker is open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from goqueue.broker.operations.caller import Caller
from goqueue.broker.operations.host import Host
from goqueue.model.errors import ShuttingDown

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Resource(Enum):
    """What an operation acts on. Unless it is the broker, the argument after the caller names it."""

    BROKER = auto()
    TOPIC = auto()
    GROUP = auto()
    RECEIPTS = auto()
    """The receipts themselves: each names its topic, and its group in the part that only the broker can read."""
    PRODUCER = auto()
    TRANSACTION = auto()
    COMMIT_KEY = auto()
    SUBJECT = auto()
    SCHEMA = auto()
    TRACE = auto()


class Served(Enum):
    """How long an operation is served while the broker stops."""

    WHILE_ACCEPTING = auto()
    """Refused from the moment at which the broker begins to stop: the operation brings something new."""
    UNTIL_CLOSED = auto()
    """Served while the broker finishes what it has accepted, and refused once it closes its files."""
    ALWAYS = auto()
    """Never refused: it asks how the broker is, or gives something back."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that a protocol can ask for, as permissions and the audit log will name it."""

    name: str
    resource: Resource
    served: Served


OPERATIONS: dict[str, Operation] = {}
"""Every operation there is, by name."""


class Gate:
    """Whether the broker is open, and the hook that every operation goes through. Used by the event loop only."""

    def __init__(self) -> None:
        self.is_stopping = False
        """From the moment at which the broker takes nothing new."""
        self._is_closed = False

    def stop_accepting(self) -> None:
        """Refuse from now on what brings something new."""
        self.is_stopping = True

    def close(self) -> None:
        """Refuse from now on every operation that is not always served."""
        self.is_stopping = self._is_closed = True

    def admit(self, caller: Caller, operation: Operation, resource: object) -> None:
        """Raise unless ``caller`` may have ``operation`` done to ``resource`` now.

        Called once by every operation, before it does anything. It runs for every publish, poll and ack, so it must
        stay this small: no await, no allocation.
        """
        if self.is_stopping:
            self._check_served(operation)

    def check_open(self) -> None:
        """For work under way that must not go on once the broker begins to stop."""
        if self.is_stopping:
            raise _stopping()

    def _check_served(self, operation: Operation) -> None:
        if operation.served is Served.WHILE_ACCEPTING:
            raise _stopping()
        if self._is_closed and operation.served is Served.UNTIL_CLOSED:
            raise ShuttingDown("the broker has stopped", retry_after_s=1)


def _stopping() -> ShuttingDown:
    return ShuttingDown("the broker is stopping and takes nothing new", retry_after_s=1)


class ResourceOperations:
    """Base of every class of operations. Each of its public methods is declared with ``operation``."""

    def __init__(self, host: Host, gate: Gate) -> None:
        self._host = host
        self.gate = gate


Owner = TypeVar("Owner", bound=ResourceOperations)
Method = Callable[Concatenate[Owner, Caller, Parameters], Result]


def operation(
    name: str, resource: Resource, served: Served = Served.UNTIL_CLOSED
) -> Callable[[Method[Owner, Parameters, Result]], Method[Owner, Parameters, Result]]:
    """Declare a method as an operation: it goes through the gate before its body runs.

    The gate is passed when the method is called, not when its result is awaited. The resource is the argument after the
    caller, and must be given by position.
    """
    if name in OPERATIONS:
        raise ValueError(f"there are two operations {name!r}")
    declared = OPERATIONS[name] = Operation(name, resource, served)

    def declare(method: Method[Owner, Parameters, Result]) -> Method[Owner, Parameters, Result]:
        if resource is Resource.BROKER:

            @wraps(method)
            def call(self: Owner, caller: Caller, /, *args: Parameters.args, **named: Parameters.kwargs) -> Result:
                self.gate.admit(caller, declared, None)
                return method(self, caller, *args, **named)

        else:

            @wraps(method)
            def call(self: Owner, caller: Caller, /, *args: Parameters.args, **named: Parameters.kwargs) -> Result:
                self.gate.admit(caller, declared, args[0])
                return method(self, caller, *args, **named)

        call.operation = declared  # type: ignore[attr-defined]
        return call

    return declare

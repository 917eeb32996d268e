"""Every operation goes through the gate, and a broker that is closed or stops refuses what it has to refuse."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import goqueue.broker
from goqueue.broker.broker import Broker
from goqueue.broker.operations import (
    ANONYMOUS,
    IN_PROCESS,
    OPERATIONS,
    Bounds,
    Caller,
    CallerProtocol,
    Gate,
    Operation,
    Operations,
    Resource,
    ResourceOperations,
    Served,
)
from goqueue.model.config import Config, StorageConfig
from goqueue.model.errors import ShuttingDown
from goqueue.model.publishing import NewMessage

ROOT = Path(__file__).parents[4]
CALLER = Caller("ada", "127.0.0.1:5000", CallerProtocol.HTTP)
TAKES_NOTHING_NEW = "the broker is stopping and takes nothing new"
HAS_STOPPED = "the broker has stopped"


class Admitted(Exception):
    """What this gate raises, so that nothing of an operation is carried out."""

    def __init__(self, caller: Caller, operation: Operation, resource: object) -> None:
        super().__init__(operation.name)
        self.caller, self.operation, self.resource = caller, operation, resource


class TellingGate(Gate):
    def admit(self, caller: Caller, operation: Operation, resource: object) -> None:
        raise Admitted(caller, operation, resource)


class NoHost:
    """A host that fails on any use: an operation that reaches it has gone past the gate."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"an operation asked for {name} before it was admitted")


def groups_of(operations: Operations) -> list[ResourceOperations]:
    return [each for each in vars(operations).values() if isinstance(each, ResourceOperations)]


def methods_of(group: ResourceOperations) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, _ in inspect.getmembers(type(group), inspect.isfunction):
        if not name.startswith("_"):
            yield f"{type(group).__name__}.{name}", getattr(group, name)


def arguments_of(method: Callable[..., Any]) -> list[Any]:
    """A text for each parameter after the caller that must be given by position."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    return ["x" for each in parameters if each.kind is not each.KEYWORD_ONLY and each.default is each.empty]


def named_arguments_of(method: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(method).parameters.values()
    return {each.name: "x" for each in parameters if each.kind is each.KEYWORD_ONLY and each.default is each.empty}


def call(method: Callable[..., Any], caller: Caller = CALLER) -> Any:
    return method(caller, *arguments_of(method), **named_arguments_of(method))


UNSERVED = Operations(NoHost(), TellingGate())  # type: ignore[arg-type]
METHODS = [pair for group in groups_of(UNSERVED) for pair in methods_of(group)]
NAMES = [name for name, _ in METHODS]


def declared(method: Callable[..., Any]) -> Operation | None:
    return getattr(method, "operation", None)


def broker_on(path: Path) -> Broker:
    return Broker(Config(storage=StorageConfig(path=str(path), min_free_bytes=0)))


@pytest.mark.parametrize("method", [method for _, method in METHODS], ids=NAMES)
def test_every_method_is_declared_as_an_operation_and_admitted_before_it_does_anything(
    method: Callable[..., Any],
) -> None:
    with pytest.raises(Admitted) as admitted:
        call(method)
    assert admitted.value.operation is declared(method)
    assert admitted.value.caller is CALLER
    names_one = admitted.value.operation.resource is not Resource.BROKER
    assert admitted.value.resource == ("x" if names_one else None)


def test_every_operation_is_declared_once_by_a_method() -> None:
    assert sorted(each.name for each in map(declared, (method for _, method in METHODS)) if each) == sorted(OPERATIONS)


def test_every_class_of_operations_is_behind_the_front_door() -> None:
    assert {type(each) for each in groups_of(UNSERVED)} == set(ResourceOperations.__subclasses__())


async def test_a_closed_broker_refuses_every_operation(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as broker:
        pass
    for group in groups_of(broker.operations):
        for name, method in methods_of(group):
            operation = declared(method)
            assert operation is not None
            if operation.served is Served.ALWAYS:
                continue
            with pytest.raises(ShuttingDown) as refused:
                call(method)
            told = TAKES_NOTHING_NEW if operation.served is Served.WHILE_ACCEPTING else HAS_STOPPED
            assert (name, str(refused.value), refused.value.retry_after_s) == (name, told, 1)


async def test_a_broker_that_stops_takes_nothing_new_and_lets_others_finish(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as broker:
        await broker.create_topic("t")
        await broker.publish("t", [NewMessage(b"v")])
        broker.stop_accepting()
        for group in groups_of(broker.operations):
            for name, method in methods_of(group):
                operation = declared(method)
                if operation is not None and operation.served is Served.WHILE_ACCEPTING:
                    with pytest.raises(ShuttingDown, match=TAKES_NOTHING_NEW):
                        call(method)
                        pytest.fail(f"{name} was not refused")
        with pytest.raises(ShuttingDown, match=TAKES_NOTHING_NEW):
            await broker.publish("t", [NewMessage(b"v")])
        found = await broker.operations.reading.read(CALLER, "t", 0, Bounds(1_000))
        assert [each.value for each in found.messages] == [b"v"]
        assert broker.operations.system.problems(CALLER)


async def test_the_broker_itself_is_a_caller_of_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Caller, str, object]] = []
    async with broker_on(tmp_path) as broker:
        monkeypatch.setattr(
            broker.operations._gate,
            "admit",
            lambda caller, operation, resource: seen.append((caller, operation.name, resource)),
        )
        await broker.create_topic("t")
        await broker.publish("t", [NewMessage(b"v")])
        await broker.read("t", 0, Bounds(1_000))
        await broker.read_frames("t", 0, Bounds(1_000))
        await broker.change_topic("t", {})
        await broker.purge_topic("t")
        broker.losses()
        await broker.acknowledge_losses("t")
        broker.problems()
        await broker.delete_topic("t")
    assert {caller for caller, _, _ in seen} == {IN_PROCESS}
    assert [(name, resource) for _, name, resource in seen] == [
        ("topics.create", "t"),
        ("messages.publish", "t"),
        ("messages.read", "t"),
        ("messages.fetch", "t"),
        ("topics.change", "t"),
        ("topics.purge", "t"),
        ("damage.list", None),
        ("damage.acknowledge", "t"),
        ("broker.problems", None),
        ("topics.delete", "t"),
    ]


def test_a_caller_is_anonymous_and_in_the_process_unless_it_says_otherwise() -> None:
    assert (IN_PROCESS.principal, IN_PROCESS.address, IN_PROCESS.protocol) == (
        ANONYMOUS,
        "",
        CallerProtocol.IN_PROCESS,
    )


def test_no_room_of_the_broker_is_open_to_protocols() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = [each for each in contracts if each.get("source_modules") == ["goqueue.api"]]
    folder = Path(next(iter(goqueue.broker.__path__)))
    rooms = {each.stem for each in folder.iterdir() if each.suffix == ".py" or (each / "__init__.py").is_file()}
    closed = {each for each in contract["forbidden_modules"] if each.startswith("goqueue.broker.")}
    assert closed == {f"goqueue.broker.{each}" for each in rooms - {"__init__", "operations"}}
    assert contract["ignore_imports"] == ["goqueue.api.server -> goqueue.broker.broker"]

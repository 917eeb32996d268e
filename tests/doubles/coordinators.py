"""What tests look at in the coordinators of a broker's transactions."""

from __future__ import annotations

from goqueue.broker.broker import Broker
from goqueue.broker.transactions.coordinator import Coordinator
from goqueue.coordination.transaction_records import NamedProducer


def all_of(broker: Broker) -> list[Coordinator]:
    return broker.transactions.coordinators.serving


def decided(broker: Broker) -> list[str]:
    """Transactions that are committed, and not known to have ended everywhere."""
    return [name for each in all_of(broker) for name in each.state.decided]


def are_idle(broker: Broker) -> bool:
    """Whether nothing is being prepared or ended."""
    return not any(each.ending.timeouts._tasks for each in all_of(broker))


def are_all_ended(broker: Broker) -> bool:
    """Whether nothing that could not be ended everywhere is tried again."""
    return not any(each.completion._late for each in all_of(broker)) and broker.transactions._thawing._later is None


def are_noted(broker: Broker) -> bool:
    """Whether no end of a transaction is yet to be noted."""
    return all(each.completion._finisher is None for each in all_of(broker))


def aborted(broker: Broker) -> list[str]:
    """The latest of those of which it is remembered why they were aborted."""
    return [name for each in all_of(broker) for name in each.opened.reasons]


def named(broker: Broker, name: str) -> NamedProducer | None:
    return broker.transactions.coordinators.of_name(name).state.producer(name)

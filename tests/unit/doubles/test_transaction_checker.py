"""The checker of transactions itself: it finds every kind of anomaly that is planted, and nothing in what is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from random import Random

import pytest
from doubles.transaction_checker import check
from doubles.transaction_history import History, Notes, Outcome, Place, Read, Takeover, Transaction, View

A, B, C = ("t", "a"), ("t", "b"), ("u", "c")


class Story:
    """Tells a history step by step; every step takes two moments."""

    def __init__(self) -> None:
        self.notes = Notes(count(1).__next__)
        self.history = self.notes.history

    def begin(self, producer: str = "p", epoch: int = 0, inputs: tuple[str, ...] = ()) -> Transaction:
        transaction = self.notes.begin(producer, epoch)
        transaction.inputs += inputs
        return transaction

    def append(self, transaction: Transaction, *steps: tuple[Place, str], stored: bool = True) -> None:
        for place, value in steps:
            append = self.notes.append(transaction, place, value)
            append.ended = self.notes.now()
            if stored:
                self.history.log[place].append(value)

    def end(self, transaction: Transaction, outcome: Outcome = Outcome.COMMITTED) -> None:
        self.notes.commit(transaction)
        if outcome is not Outcome.UNKNOWN:
            self.notes.answered(transaction, outcome)

    def read(self, place: Place, *values: str, inside: Transaction | None = None, position: int = 0) -> None:
        read = Read("r", place, position, values, self.notes.now(), self.notes.now())
        (self.history.reads if inside is None else inside.reads).append(read)

    def kinds(self) -> set[str]:
        return {anomaly.kind for anomaly in check(self.history)}


def a_clean_story() -> Story:
    story = Story()
    story.history.inputs |= {"in 1", "in 2", "in 3"}
    story.notes.took_over("p", 1)
    first = story.begin("p", 1, ("in 1",))
    story.append(first, (A, "1"), (B, "2"), (A, "3"))
    story.read(A)
    story.end(first)
    story.read(A, "1", "3")
    aborted = story.begin("p", 1, ("in 2",))
    story.append(aborted, (A, "4"), (C, "5"), stored=False)
    story.end(aborted, Outcome.ABORTED)
    unknown = story.begin("p", 1, ("in 2",))
    story.append(unknown, (C, "6"), (B, "7"))
    story.end(unknown, Outcome.UNKNOWN)
    never = story.begin("p", 1, ("in 3",))
    story.append(never, (C, "8"), (B, "9"), stored=False)
    story.end(never, Outcome.UNKNOWN)
    story.notes.took_over("p", 2)
    last = story.begin("p", 2)
    story.read(B, "2", inside=last)
    story.append(last, (A, "10"), (C, "11"))
    story.read(B, "7", inside=last, position=1)
    story.end(last)
    story.read(A, "1", "3", "10")
    story.history.left.add("in 3")
    return story


def test_what_is_right_passes() -> None:
    assert check(a_clean_story().history) == []


def test_open_transactions_may_write_to_two_keys_in_opposite_orders() -> None:
    story = Story()
    one, two = story.begin("p"), story.begin("q")
    story.append(one, (A, "1"))
    story.append(two, (A, "2"), (B, "3"))
    story.append(one, (B, "4"))
    story.end(one)
    story.end(two)
    assert check(story.history) == []


def _lose(story: Story) -> None:
    story.history.log[A] = []
    story.history.log[B].remove("2")


def _read_an_aborted_value(story: Story) -> None:
    story.read(A, "1", "3", "10", "4")


def _read_too_early(story: Story) -> None:
    reads = story.history.reads
    reads.append(replace(reads[0], values=("1",)))


def _read_what_is_gone(story: Story) -> None:
    story.read(C, "6", "11", "8")


def _read_twice(story: Story) -> None:
    story.read(A, "1", "1", "3", "10")


def _read_out_of_order(story: Story) -> None:
    story.read(A, "3", "1")


def _skip_one(story: Story) -> None:
    story.read(A, "1", "10")


def _read_less_than_before(story: Story) -> None:
    story.read(A, "1")


def _swap_own(story: Story) -> None:
    log = story.history.log[A]
    log[0], log[1] = log[1], log[0]


def _swap_in_time(story: Story) -> None:
    story.history.reads.clear()
    story.history.log[A] = ["10", "1", "3"]


def _commit_when_fenced(story: Story) -> None:
    late = story.begin("p", 1)
    story.append(late, (B, "late"))
    story.end(late)


def _commit_when_fenced_without_an_answer(story: Story) -> None:
    late = story.begin("p", 1)
    story.append(late, (B, "late"))
    story.end(late, Outcome.UNKNOWN)


def _write_behind_a_newer_epoch(story: Story) -> None:
    story.history.takeovers.clear()
    late = story.begin("p", 1)
    story.append(late, (C, "late"))
    story.end(late)


def _process_twice(story: Story) -> None:
    again = story.begin("p", 2, ("in 1",))
    story.append(again, (B, "again"))
    story.end(again)


PLANTED: list[tuple[str, Callable[[Story], object]]] = [
    ("made up", lambda story: story.history.log[A].append("no one's")),
    ("made up", lambda story: story.history.log[B].append("never sent here")),
    ("made up", lambda story: story.read(A, "1", "3", "10", "no one's")),
    ("made up", lambda story: story.history.inputs.discard("in 1")),
    ("dirty write", lambda story: story.history.log[A].append("4")),
    ("dirty read", _read_an_aborted_value),
    ("dirty read", _read_too_early),
    ("dirty read", _read_what_is_gone),
    ("lost write", _lose),
    ("lost write", lambda story: story.history.log[A].remove("3")),
    ("torn", lambda story: story.history.log[A].remove("3")),
    ("torn", lambda story: story.history.log[B].remove("7")),
    ("torn", lambda story: story.history.log[C].append("8")),
    ("duplicate", lambda story: story.history.log[A].append("1")),
    ("duplicate", _read_twice),
    ("order", _swap_own),
    ("not a prefix", _read_out_of_order),
    ("not a prefix", _skip_one),
    ("went back", _read_less_than_before),
    ("fenced", _commit_when_fenced),
    ("fenced", _commit_when_fenced_without_an_answer),
    ("fenced", _write_behind_a_newer_epoch),
    ("processed twice", _process_twice),
    ("came again", lambda story: story.history.left.add("in 2")),
    ("lost input", lambda story: story.history.left.discard("in 3")),
    ("circle", _swap_in_time),
]


@pytest.mark.parametrize(("kind", "plant"), PLANTED)
def test_what_is_planted_is_found(kind: str, plant: Callable[[Story], object]) -> None:
    story = a_clean_story()
    plant(story)
    assert kind in story.kinds()


def test_two_transactions_that_have_seen_each_other_are_a_circle() -> None:
    story = Story()
    one, two = story.begin("p"), story.begin("q")
    story.append(one, (A, "1"))
    story.append(two, (B, "2"))
    story.notes.commit(one)
    story.notes.commit(two)
    # Both reads lie behind both commits' beginnings, so that neither is dirty by itself.
    story.read(B, "2", inside=one)
    story.read(A, "1", inside=two)
    story.notes.answered(one, Outcome.COMMITTED)
    story.notes.answered(two, Outcome.COMMITTED)
    [anomaly] = check(story.history)
    assert anomaly.kind == "circle"
    assert anomaly.what.count("(wr)") == 2


def test_a_later_transaction_that_lies_first_is_a_circle_of_offsets_and_time() -> None:
    story = Story()
    first = story.begin("p")
    story.append(first, (A, "1"))
    story.end(first)
    second = story.begin("q")
    story.append(second, (A, "2"))
    story.end(second)
    assert story.kinds() == set()
    story.history.log[A].reverse()
    [anomaly] = check(story.history)
    assert anomaly.kind == "circle"
    assert "(ww)" in anomaly.what and "(time)" in anomaly.what


class Pretend:
    """A broker that does right, in memory: logs of places, read up to the first record of an open transaction."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.story = Story()
        self.stored: dict[Place, list[tuple[str, Transaction]]] = {A: [], B: [], C: []}
        self.open: dict[str, Transaction] = {}
        self.epochs: dict[str, int] = dict.fromkeys("pqr", 0)
        self.views = {place: View(f"view of {place}", [place]) for place in self.stored}

    def seen(self, place: Place) -> list[str]:
        values = []
        for value, writer in self.stored[place]:
            if writer.name in self.open:
                break
            if writer.outcome is not Outcome.ABORTED:
                values.append(value)
        return values

    def step(self) -> None:
        rng, notes = self.rng, self.story.notes
        producer = rng.choice("pqr")
        transaction = next((each for each in self.open.values() if each.producer == producer), None)
        place = rng.choice(list(self.stored))
        if rng.random() < 0.2:
            view = self.views[place]
            began, values = notes.now(), self.seen(place)[view._counts[place] :]
            self.story.history.reads += view.read([(place, each) for each in values], began, notes.now())
        elif rng.random() < 0.05:
            if transaction is not None:
                self.end(transaction, Outcome.ABORTED)
            self.epochs[producer] += 1
            notes.took_over(producer, self.epochs[producer])
        elif transaction is None:
            transaction = notes.begin(producer, self.epochs[producer])
            self.open[transaction.name] = transaction
        elif rng.random() < 0.25 and transaction.appends:
            notes.commit(transaction)
            self.end(transaction, rng.choice([Outcome.COMMITTED, Outcome.COMMITTED, Outcome.ABORTED]))
        elif rng.random() < 0.3:
            began, values = notes.now(), self.seen(place)
            transaction.reads.append(Read("inside", place, 0, tuple(values), began, notes.now()))
        else:
            append = notes.append(transaction, place, notes.fresh_value())
            self.stored[place].append((append.value, transaction))
            append.ended = notes.now()

    def end(self, transaction: Transaction, outcome: Outcome) -> None:
        del self.open[transaction.name]
        self.story.notes.answered(transaction, outcome)

    def finish(self) -> History:
        for transaction in list(self.open.values()):
            self.end(transaction, Outcome.ABORTED)
        self.story.history.log.update({place: self.seen(place) for place in self.stored})
        return self.story.history


def a_random_history(seed: int) -> History:
    pretend = Pretend(Random(seed))
    for _ in range(400):
        pretend.step()
    return pretend.finish()


@pytest.mark.parametrize("seed", range(10))
def test_random_histories_of_a_right_broker_pass(seed: int) -> None:
    history = a_random_history(seed)
    assert sum(map(len, history.log.values())) > 20
    assert check(history) == []


@pytest.mark.parametrize("seed", range(10))
def test_any_single_damage_to_the_final_log_is_found(seed: int) -> None:
    rng = Random(seed)
    aborted = [
        append
        for each in a_random_history(seed).transactions
        if each.outcome is Outcome.ABORTED
        for append in each.appends
    ]
    for damage in ("drop", "repeat", "move", "resurrect"):
        history = a_random_history(seed)
        log = history.log[rng.choice([place for place, values in history.log.items() if len(values) > 4])]
        at = rng.randrange(len(log) - 1)
        if damage == "drop":
            del log[at]
        elif damage == "repeat":
            log.insert(rng.randrange(len(log)), log[at])
        elif damage == "move":
            # To the other end: further than any two transactions overlap.
            log.insert(0, log.pop())
        else:
            append = rng.choice(aborted)
            history.log[append.place].append(append.value)
        assert check(history) != [], damage


def test_a_takeover_that_its_client_never_learned_of_fences_by_offsets_alone() -> None:
    story = Story()
    old = story.begin("p", 1)
    new = story.begin("p", 2)
    story.append(new, (A, "2"))
    story.append(old, (A, "1"))
    story.end(old)
    story.end(new)
    story.history.takeovers.append(Takeover("p", 2, 1 << 60))
    assert story.kinds() == {"fenced"}

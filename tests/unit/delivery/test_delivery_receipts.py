from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.delivery.receipts import MAX_RECEIPT_LENGTH, Seal, parse_receipt
from goqueue.model.errors import InvalidReceipt

KEY = b"k" * 32
SEAL = Seal(KEY, "orders", 3, "mail", "a1/f00/3")
RECEIPT = SEAL.receipt(17, 2, 9)


def holds(text: str, seal: Seal = SEAL) -> bool:
    """As a broker judges: it looks the queue up by what the receipt says, and then checks."""
    try:
        receipt = parse_receipt(text)
        if (receipt.topic, receipt.partition, receipt.group) != ("orders", 3, "mail"):
            return False
        seal.check(receipt)
    except InvalidReceipt:
        return False
    return True


def test_a_receipt_has_five_parts_and_says_what_it_is_for() -> None:
    receipt = parse_receipt(RECEIPT)
    assert RECEIPT.startswith("orders:3:17:2:")
    assert receipt[:6] == ("orders", 3, 17, 2, "mail", 9)
    assert holds(RECEIPT)


@pytest.mark.parametrize("place", range(len(RECEIPT)))
def test_a_receipt_altered_in_any_character_is_refused(place: int) -> None:
    for other in "0129AZaz-_:=+/ é\0":
        altered = RECEIPT[:place] + other + RECEIPT[place + 1 :]
        assert altered == RECEIPT or not holds(altered)
    assert not holds(RECEIPT[:place] + RECEIPT[place + 1 :])
    for more in ("=", "!", "A", "0", "\n"):
        assert not holds(RECEIPT[:place] + more + RECEIPT[place:])


@pytest.mark.parametrize("group", ["g", "gg", "ggg", "gruppe-ü"])
def test_the_last_character_counts_whatever_the_length_of_the_group(group: str) -> None:
    seal = Seal(KEY, "t", 0, group, "i/t/0")
    receipt = seal.receipt(1, 1, 1)
    seal.check(parse_receipt(receipt))
    for other in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=":
        if other != receipt[-1]:
            with pytest.raises(InvalidReceipt):
                altered = parse_receipt(receipt[:-1] + other)
                seal.check(altered)
                assert altered.group != group
                raise InvalidReceipt("of another group, which does not exist")


def test_a_receipt_of_another_group_topic_or_broker_is_refused() -> None:
    others = [
        Seal(KEY, "orders", 3, "mail", "b2/f00/3"),
        Seal(KEY, "orders", 3, "mail", "a1/f01/3"),
        Seal(KEY, "orders", 3, "mail", "a1/f00/4"),
        Seal(b"x" * 32, "orders", 3, "mail", "a1/f00/3"),
    ]
    for other in others:
        assert not holds(other.receipt(17, 2, 9))
        assert not holds(RECEIPT, other)


@given(st.integers(0, 40), st.integers(0, 5), st.integers(0, 20))
def test_a_proof_is_for_one_offset_count_and_lease(offset: int, count: int, lease: int) -> None:
    receipt = parse_receipt(RECEIPT)._replace(offset=offset, deliveries=count, lease=lease)
    if (offset, count, lease) == (17, 2, 9):
        SEAL.check(receipt)
    else:
        with pytest.raises(InvalidReceipt):
            SEAL.check(receipt)


def test_a_token_proves_one_lease_and_one_count() -> None:
    token = SEAL.token(2, 9)
    SEAL.check_token(token, 2, 9)
    for count, lease in ((3, 9), (2, 8)):
        with pytest.raises(InvalidReceipt):
            SEAL.check_token(token, count, lease)
    for altered in (b"", token[:-1], token + b"x", bytes(len(token))):
        with pytest.raises(InvalidReceipt):
            SEAL.check_token(altered, 2, 9)


@given(st.text(max_size=60))
def test_nonsense_is_refused_with_an_error_that_says_so(text: str) -> None:
    assert not holds(text)


@pytest.mark.parametrize(
    "text", ["", ":::::", "t:0:1:1:", "t:x:1:1:AAAA", "t:0:01:1:AAAA", "t:0:1:1:****", "t:0:1:1:é", "a" * 2_000]
)
def test_what_cannot_be_read_is_an_invalid_receipt(text: str) -> None:
    with pytest.raises(InvalidReceipt):
        parse_receipt(text)


def test_a_receipt_is_not_longer_than_is_read() -> None:
    assert len(Seal(KEY, "t" * 200, 9_999, "g" * 200, "i").receipt(1 << 62, 1_000_000, 1 << 62)) <= MAX_RECEIPT_LENGTH

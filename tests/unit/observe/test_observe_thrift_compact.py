"""What we write is what the ``thrift`` package writes, and reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TMessageType, TType
from thrift.transport.TTransport import TMemoryBuffer

from goqueue.observe import thrift_compact as ours

I32 = st.integers(-(1 << 31), (1 << 31) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
NUMBERS = st.lists(st.integers(1, 32_767), min_size=1, max_size=20, unique=True).map(sorted)
VALUES = st.one_of(
    st.tuples(st.just(TType.I32), I32),
    st.tuples(st.just(TType.I64), I64),
    st.tuples(st.just(TType.BOOL), st.booleans()),
    st.tuples(st.just(TType.STRING), TEXT),
    st.tuples(st.just(TType.LIST), st.lists(I64, max_size=40)),
)
STRUCTS = NUMBERS.flatmap(lambda numbers: st.tuples(*[st.tuples(st.just(number), VALUES) for number in numbers]))


def written_by_us(fields: tuple[tuple[int, tuple[int, object]], ...]) -> bytes:
    makers = {
        TType.I32: ours.i32_field,
        TType.I64: ours.i64_field,
        TType.BOOL: ours.bool_field,
        TType.STRING: ours.text_field,
        TType.LIST: lambda number, values: ours.structs_field(
            number, [ours.struct(ours.i64_field(1, value)) for value in values]
        ),
    }
    inner = ours.struct(*[makers[kind](number, value) for number, (kind, value) in fields])
    return ours.one_way_call("emitBatch", ours.struct(ours.struct_field(1, inner)))


def written_by_them(fields: tuple[tuple[int, tuple[int, object]], ...]) -> bytes:
    buffer = TMemoryBuffer()
    protocol = TCompactProtocol(buffer)
    writers = {
        TType.I32: protocol.writeI32,
        TType.I64: protocol.writeI64,
        TType.BOOL: protocol.writeBool,
        TType.STRING: protocol.writeString,
    }
    protocol.writeMessageBegin("emitBatch", TMessageType.ONEWAY, 0)
    protocol.writeStructBegin("arguments")
    protocol.writeFieldBegin("inner", TType.STRUCT, 1)
    protocol.writeStructBegin("inner")
    for number, (kind, value) in fields:
        protocol.writeFieldBegin("", kind, number)
        if kind == TType.LIST:
            protocol.writeListBegin(TType.STRUCT, len(value))
            for item in value:
                protocol.writeStructBegin("item")
                protocol.writeFieldBegin("", TType.I64, 1)
                protocol.writeI64(item)
                protocol.writeFieldEnd()
                protocol.writeFieldStop()
                protocol.writeStructEnd()
            protocol.writeListEnd()
        else:
            writers[kind](value)
        protocol.writeFieldEnd()
    protocol.writeFieldStop()
    protocol.writeStructEnd()
    protocol.writeFieldEnd()
    protocol.writeFieldStop()
    protocol.writeStructEnd()
    protocol.writeMessageEnd()
    return buffer.getvalue()


@given(STRUCTS)
def test_structs_are_written_as_the_thrift_package_writes_them(
    fields: tuple[tuple[int, tuple[int, object]], ...],
) -> None:
    assert written_by_us(fields) == written_by_them(fields)


@given(st.lists(I64, min_size=1, max_size=30), TEXT)
def test_what_was_written_is_read_again(numbers: list[int], text: str) -> None:
    fields = [ours.i64_field(number, value) for number, value in enumerate(numbers, 1)]
    protocol = TCompactProtocol(TMemoryBuffer(ours.struct(*fields, ours.text_field(1_000, text))))
    protocol.readStructBegin()
    for number, value in enumerate(numbers, 1):
        assert protocol.readFieldBegin() == (None, TType.I64, number)
        assert protocol.readI64() == value
        protocol.readFieldEnd()
    assert protocol.readFieldBegin() == (None, TType.STRING, 1_000)
    assert protocol.readString() == text
    protocol.readFieldEnd()
    assert protocol.readFieldBegin()[1] == TType.STOP


@given(st.integers(0, (1 << 64) - 1))
def test_64_bits_become_an_integer_with_the_same_bits(value: int) -> None:
    assert ours.signed(value).to_bytes(8, signed=True) == value.to_bytes(8)


def test_lists_of_fourteen_and_fifteen_have_the_two_kinds_of_heads() -> None:
    item = ours.struct()
    assert ours.structs_field(1, [item] * 14)[2][:1] == b"\xec"
    assert ours.structs_field(1, [item] * 15)[2][:2] == b"\xfc\x0f"

"""What our own parser makes of ``.proto`` text is what protoc makes of it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

from goqueue.model.errors import InvalidSchema
from goqueue.schemas.protobuf.protobuf_schema import ProtobufSchema, parse_protobuf

TEXTS = {
    "plain.proto": """
        syntax = "proto3";
        package shop.orders.v1;
        option java_package = "com.shop"; option optimize_for = CODE_SIZE; option cc_enable_arenas = true;
        // A comment
        message Order {
          string id = 1; /* another ** // */ int64 total_cents = 2;;
          repeated string tags = 3; repeated int32 numbers = 4 [packed = false];
          optional string note = 5; optional int32 _odd = 6; optional Line first_line = 7;
          Line line = 8 [deprecated = true, json_name = "zeile"];
          message Line { string sku = 1; Inner inner = 2; message Inner { Order back = 1;
          .shop.orders.v1.Order again = 2; } }
          Line.Inner deep = 9; orders.v1.Order.Line qualified = 10; shop.orders.v1.Order whole = 11;
          reserved 100, 200 to 300, 1000 to max; reserved "old", 'older';
          oneof pay { string card = 20; int64 cash = 21; Line swap = 22; }
          State state = 30;
          enum State { option allow_alias = true; UNKNOWN = 0; NEW = 1; FRESH = 1; BAD = -5 [deprecated = true];
                       reserved 7, 9 to 11, 40 to max; reserved "GONE"; }
        }
    """,
    "maps.proto": """
        syntax = "proto3";
        message M {
          message Before {}
          map<string, M> by_name = 1; map<int32, bytes> x2y_z = 2 [deprecated = true];
          message Between {}
          map < bool , Kind > kinds_ = 3; map<sfixed64, .M.Before> __strange__name = 4;
          enum Kind { A = 0; }
          message After {}
        }
    """,
    "optionals.proto": """
        syntax = "proto3";
        message Opt { optional int32 a = 1; oneof o { int32 b = 2; } optional string c = 3; int32 _c = 4; int32 X_a = 5;
                    optional double Xyz = 6; optional Opt _m = 7; }
    """,
    "two.proto": """
        package p.q;
        message A {
          required int32 id = 1; optional group Extra = 2 [deprecated = true] { optional int32 n = 1; }
          repeated group Row = 3 { required string cell = 1; repeated group Sub = 2 { optional A a = 1; } }
          optional float f = 4 [default = 1.1]; optional float g = 5 [default = 123456789];
          optional bytes b = 6 [default = "a\\001\\xff\\"'\\u00e9\\?\\a"];
          optional string s = 7 [default = 'x' "y\\n\\'" "é"];
          optional int64 i = 8 [default = -0x10]; optional uint64 u = 9 [default = 0xFFFFFFFFFFFFFFFF];
          optional int32 o = 10 [default = 017]; optional double d1 = 11 [default = -inf];
          optional double d2 = 12 [default = nan];
          optional double d3 = 13 [default = 1e300]; optional float d4 = 14 [default = 1e39];
          optional double d5 = 15 [default = -0.0];
          optional double d6 = 16 [default = 123456789012345678]; optional bool yes = 17 [default = true];
          optional Color color = 18 [default = RED, json_name = "farbe"]; optional double d7 = 19 [default = .5e-3];
          optional double d8 = 20 [default = 0.1]; optional float d9 = 21 [default = 3.4028235e38];
          optional double e = 22 [default = 5.];
          oneof pick { string one = 30; group Two = 31 { optional int32 deep = 1; } bytes three = 32 [default = "z"]; }
          extensions 100 to 199, 500, 1000 to max;
          extend A { optional int32 inside = 101; repeated string many = 102; }
          optional string message = 40; optional int32 optional = 41; optional string reserved = 42;
          optional to of = 43;
          enum to { max = 0; rpc = -1; }
        }
        enum Color { GREEN = 5; RED = -2; BIG = 0x7FFFFFFF; SMALL = -2147483648; }
        extend A { optional Color paint = 150 [default = GREEN]; }
        extend .p.q.A { optional A more = 151; }
        service S { option deprecated = true; rpc Get (A) returns (stream q.A); rpc Put (stream .p.q.A) returns (A) { }
          rpc Opt (A) returns (A) { option deprecated = true; option idempotency_level = NO_SIDE_EFFECTS; ; } }
    """,
    "set.proto": """
        syntax = "proto2";
        message Set { option message_set_wire_format = true; extensions 4 to max; }
        message Item { extend Set { optional Item item = 1000; } }
    """,
    "scopes.proto": """
        syntax = "proto3";
        package a.b;
        message a { message C { int32 x = 1; } C c1 = 1; }
        message D { .a.b.a.C c = 1; a.C d = 2; b.D e = 3; D D = 4; E E2 = 5; enum E { Z = 0; } message Sub { E e = 1;
        D d = 2; } }
        message Name { string Name = 1; Name other = 2; message Inner { Name name = 1; } }
    """,
    "imported/base.proto": """
        syntax = "proto3"; package base; import public "imported/deep.proto";
        message Base { deep.Deep deep = 1; } enum Level { LOW = 0; }
    """,
    "imported/deep.proto": 'syntax = "proto3"; package deep; message Deep { int32 x = 1; }',
    "importing.proto": """
        syntax = "proto3"; import "imported/base.proto"; import weak "google/protobuf/timestamp.proto"; package top;
        import "google/protobuf/wrappers.proto"; import "google/protobuf/struct.proto";
        import "google/protobuf/any.proto";
        message Top { base.Base b = 1; deep.Deep d = 2; google.protobuf.Timestamp t = 3; base.Level l = 4;
          map<string, google.protobuf.Value> v = 5; google.protobuf.StringValue s = 6;
          repeated .google.protobuf.Any any = 7; }
    """,
    "options.proto": """
        syntax = "proto2"; package opts; import "google/protobuf/descriptor.proto";
        option (about) = "file";
        option (rich) = { name: "n" list: [1, 2, 3] sub { name: 'in' "ner" }, child < name: "c" > ratio: -1.5e3 };
        option (rich).on = true;
        message Rich { optional string name = 1; repeated int32 list = 2; optional Rich sub = 3;
        optional Rich child = 4;
          optional double ratio = 5; optional bool on = 6; optional Kind kind = 7; extensions 100 to 200;
          map<string, int32> counts = 8; optional bytes raw = 9; optional int64 big = 10; }
        enum Kind { K0 = 0; K1 = 1 [(on_value) = -3]; option (on_enum) = K1; }
        extend Rich { optional Rich more = 100; }
        extend google.protobuf.FileOptions { optional string about = 50000; optional Rich rich = 50001; }
        extend google.protobuf.MessageOptions { repeated string labels = 50000; optional float weight = 50001; }
        extend google.protobuf.FieldOptions { optional Rich rule = 50000; optional bool checked = 50002;
        optional uint64 huge = 50003; }
        extend google.protobuf.EnumOptions { optional Kind on_enum = 50000; }
        extend google.protobuf.EnumValueOptions { optional sint32 on_value = 50000; }
        extend google.protobuf.OneofOptions { optional bytes on_oneof = 50000; }
        extend google.protobuf.ServiceOptions { optional bool on_service = 50000; }
        extend google.protobuf.MethodOptions { optional Rich on_method = 50000; }
        extend google.protobuf.ExtensionRangeOptions { optional int32 on_range = 50000; }
        message Used { option (labels) = "a"; option (labels) = "b"; option (opts.weight) = 0.1;
        option deprecated = true;
          optional int32 x = 1 [(rule).name = "r", (.opts.rule).sub.sub.name = "deeper", (checked) = true,
          deprecated = true,
                                (huge) = 18446744073709551615];
          optional int32 y = 2 [(rule) = { [opts.more] { big: -5 raw: "\\000\\xfe" kind: K1 } counts { key: "k"
          value: 7 } }];
          optional int32 z = 3 [(rule).(more).on = true, ctype = CORD];
          oneof o { option (on_oneof) = "\\x01\\xff"; string p = 4; }
          extensions 10 to 20, 30 [(on_range) = 4, verification = UNVERIFIED];
          extensions 40 to 41 [declaration = { number: 40 full_name: ".opts.e40" type: "int32" }];
        }
        service S { option (on_service) = true; rpc R (Used) returns (Used) { option (on_method) = { name: "m" }; } }
    """,
    "edition.proto": """
        edition = "2023"; package ed; option features.field_presence = IMPLICIT;
        message A { int32 x = 1 [features.field_presence = EXPLICIT, default = 5]; repeated int32 y = 2; string z = 3;
          A a = 4 [features.message_encoding = DELIMITED]; reserved gone, older; map<string, A> m = 5;
          oneof o { int32 p = 6; }
          int32 req = 7 [features.field_presence = LEGACY_REQUIRED]; extensions 100 to 200; enum E { reserved OLD;
          E0 = 0; } E e = 8; }
    """,
    "empty.proto": "",
    "only_enum.proto": 'syntax = "proto2"; enum E { A = 1; }',
    "confluent_like.proto": """
        syntax = "proto3"; import "confluent/meta.proto"; import "confluent/type/decimal.proto";
        message P { option (confluent.message_meta) = { doc: "a person" tags: ["PII"] };
          string name = 1 [(confluent.field_meta) = { doc: "the name", params: [{ key: "a", value: "b" }] }];
          confluent.type.Decimal price = 2 [(confluent.field_meta) = { params: { key: "precision", value: "8" } }]; }
    """,
}
CONFLUENT = {
    "confluent/meta.proto": """
        syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
        message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
    """,
    "confluent/type/decimal.proto": """
        syntax = "proto3"; package confluent.type; message Decimal { bytes value = 1; uint32 precision = 2;
        int32 scale = 3; }
    """,
}


def references_for(text: str) -> dict[str, ProtobufSchema]:
    deep = parse_protobuf(TEXTS["imported/deep.proto"], {})
    base = parse_protobuf(TEXTS["imported/base.proto"], {"imported/deep.proto": deep})
    return {
        name: schema
        for name, schema in {"imported/deep.proto": deep, "imported/base.proto": base}.items()
        if name in text
    }


def knowing_options_of(file: FileDescriptorProto) -> Callable[[FileDescriptorProto], Message]:
    """Makes of a file the same in a form that knows the options ``file`` declares: how these are encoded may differ."""
    pool = DescriptorPool()
    pool.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
    if "opts" in file.package:
        bare = FileDescriptorProto()
        bare.CopyFrom(file)
        bare.ClearField("options")
        pool.Add(bare)
    known = GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FileDescriptorProto"))
    return lambda given: known.FromString(given.SerializeToString())


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FileDescriptorProto]:
    folder = tmp_path_factory.mktemp("protos")
    for name, text in (TEXTS | CONFLUENT).items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    out = folder / "all.bin"
    well_known = str(files("grpc_tools") / "_proto")
    arguments = ["protoc", f"-I{folder}", f"-I{well_known}", "--retain_options", f"--descriptor_set_out={out}", *TEXTS]
    assert protoc.main(arguments) == 0
    return {file.name: file for file in FileDescriptorSet.FromString(out.read_bytes()).file}


@pytest.mark.parametrize("name", [name for name in TEXTS if TEXTS[name]])
def test_the_descriptor_of_a_text_is_the_one_that_protoc_makes(
    name: str, compiled: dict[str, FileDescriptorProto]
) -> None:
    schema = parse_protobuf(TEXTS[name], references_for(TEXTS[name]))
    expected = FileDescriptorProto()
    expected.CopyFrom(compiled[name])
    expected.name = schema.descriptor.name
    known = knowing_options_of(expected)
    assert known(schema.descriptor) == known(expected)


@pytest.mark.parametrize("name", [name for name in TEXTS if TEXTS[name]])
def test_text_written_from_a_descriptor_gives_the_same_descriptor_again(name: str) -> None:
    references = references_for(TEXTS[name])
    schema = parse_protobuf(TEXTS[name], references)
    again = parse_protobuf(schema.canonical(), references)
    # Not written again: the empty braces of a method, and options that only compilers need.
    if name not in ("two.proto", "options.proto"):
        assert again.descriptor == schema.descriptor
    assert again.canonical() == schema.canonical()


@pytest.mark.parametrize("name", [name for name in TEXTS if TEXTS[name]])
def test_the_base64_of_a_descriptor_and_its_text_are_one_schema(
    name: str, compiled: dict[str, FileDescriptorProto]
) -> None:

    references = references_for(TEXTS[name])
    from_text = parse_protobuf(TEXTS[name], references)
    file = FileDescriptorProto()
    file.CopyFrom(compiled[name])
    for message in file.message_type:
        for field in message.field:
            # Generated code leaves the names in JSON out that follow from the field's name.
            if field.json_name not in ("zeile", "farbe"):
                field.ClearField("json_name")
        for span in message.extension_range:
            # It also leaves out the options that only compilers need.
            span.options.ClearField("declaration")
            span.options.ClearField("verification")
    from_base64 = parse_protobuf(base64.b64encode(file.SerializeToString()).decode(), references)
    assert from_base64.canonical() == from_text.canonical()
    assert from_base64.normalized() == from_text.normalized()
    assert parse_protobuf(from_text.serialized(), references).canonical() == from_text.canonical()


BAD = [
    ("message A {", "line 1, column 12", "the text ends"),
    ('syntax = "proto4"; message A {}', "line 1, column 10", "proto2 and proto3"),
    ('edition = "2024"; message A {}', "line 1, column 11", "edition 2023"),
    ('syntax = "proto3";\nmessage A {\n  int32 x = ;\n}', "line 3, column 13", "a whole number"),
    ('syntax = "proto3";\nmessage A {\n  int32 x = 1\n}', "line 4, column 1", "expected ';'"),
    ('syntax = "proto3"; message A { int32 x = 0; }', "column 42", "between 1 and"),
    ('syntax = "proto3"; message A { int32 x = 19500; }', "column 38", "19000 to 19999"),
    ('syntax = "proto3"; message A { int32 x = 536870912; }', "column 38", "between 1 and 536870911"),
    ('syntax = "proto3"; message A { int32 x = 99999999999999999999; }', "column 42", "between 1 and"),
    ('syntax = "proto3"; message A { int32 x = 1; int32 y = 1; }', "column 51", "number 1 is that of x"),
    ('syntax = "proto3"; message A { int32 x = 1; string x = 2; }', "column 52", "declared twice"),
    ('syntax = "proto3"; message A { int32 a_b = 1; string aB = 2; }', "column 54", "same name in JSON"),
    ('syntax = "proto3"; message A {} message A {}', "column 41", "declared twice"),
    ('syntax = "proto3"; message A { B b = 1; }', "column 32", "B is not defined"),
    ('syntax = "proto3"; message A { required int32 b = 1; }', "column 32", "only in proto2"),
    ('syntax = "proto3"; message A { int32 b = 1 [default = 3]; }', "column 38", "defaults"),
    ('syntax = "proto3"; message A { repeated group B = 1 {} }', "column 41", "groups only in proto2"),
    ('syntax = "proto3"; message A { extensions 4; }', "column 28", "cannot be extended"),
    ('syntax = "proto3"; message A { oneof o { } }', "column 38", "at least one field"),
    ('syntax = "proto3"; message A { oneof o { repeated int32 x = 1; } }', "column 42", "no label"),
    ('syntax = "proto3"; message A { oneof o { map<int32, int32> x = 1; } }', "column 42", "oneof"),
    ('syntax = "proto3"; message A { map<double, int32> x = 1; }', "column 36", "keys of a map"),
    ('syntax = "proto3"; message A { map<A, int32> x = 1; }', "column 36", "keys of a map"),
    ('syntax = "proto3"; enum E { A = 1; }', "column 25", "number 0"),
    ('syntax = "proto3"; enum E { }', "column 25", "at least one value"),
    ('syntax = "proto3"; enum E { A = 0; B = 0; }', "column 25", "allow_alias"),
    ('syntax = "proto3"; enum E { A = 0; } enum F { A = 0; }', "column 47", "declared twice"),
    ('syntax = "proto3"; enum E { A = 0; reserved 2 to 5; B = 3; }', "column 53", "reserved"),
    ('syntax = "proto3"; message A { reserved 1; int32 x = 1; }', "column 50", "reserved"),
    ('syntax = "proto3"; message A { reserved "x"; int32 x = 1; }', "column 52", "reserved"),
    ('syntax = "proto3"; message A { reserved 1 to 5, 4; }', "column 28", "two of the ranges"),
    ('syntax = "proto3"; message A { reserved 5 to 1; }', "column 28", "no numbers"),
    ('syntax = "proto3"; message A { reserved x; }', "column 41", "quotes"),
    ("message A { int32 x = 1; }", "column 13", "optional, required or repeated"),
    ("message A { optional int32 x = 1 [default = abc]; }", "column 45", "a whole number"),
    ("message A { optional int32 x = 1 [default = 3000000000]; }", "column 45", "between"),
    ("message A { optional E x = 1 [default = C]; } enum E { B = 1; }", "line 1", "C"),
    ("message A { optional A x = 1 [default = C]; }", "column 22", "cannot have a default"),
    ("message A { repeated int32 x = 1 [default = 1]; }", "column 35", "repeated"),
    ("message A { optional group b = 1 {} }", "column 22", "capital letter"),
    ("message A { extensions 4 to 9; optional int32 x = 5; }", "column 47", "kept for extensions"),
    ("message A {} extend A { optional int32 x = 5; }", "line 1", "extension"),
    ("message A { extensions 5; } extend A { optional group G = 5 {} }", "column 49", "not supported"),
    ("message A { optional int32 x = 1 [nope = 1]; }", "column 35", "nope"),
    ("message A { optional int32 x = 1 [deprecated = 7]; }", "column 35", "deprecated"),
    ("message A { optional int32 x = 1 [deprecated = true, deprecated = false]; }", "column 54", "twice"),
    ("message A { optional int32 x = 1 [(nope) = 1]; }", "column 35", "not defined"),
    ('import "missing.proto"; message A {}', "column 8", "add a reference"),
    ('import "google/protobuf/any.proto"; import "google/protobuf/any.proto";', "column 44", "twice"),
    ("package a; package b;", "column 20", "one package"),
    ("message A {} package b;", "column 22", "before the first declaration"),
    ("message A {} /* never", "column 14", "never ends"),
    ('option java_package = "x\ny";', "column 23", "does not end on its line"),
    ('option java_package = "\\q";', "column 23", "unknown escape"),
    ("message Ä {}", "column 9", "no place"),
    ("message A { optional int32 x = 08; }", "column 32", "a whole number"),
    ("message A { optional int32 1x = 8; }", "column 28", "name of the field"),
    ("service S { rpc R (E) returns (E); } enum E { A = 1; }", "column 20", "message is needed"),
    ("service S { rpc R (A); } message A {}", "column 22", "returns"),
    ("hello world", "column 1", "expected a declaration"),
    ("}", "column 1", "expected a declaration"),
]


@pytest.mark.parametrize(("text", "place", "reason"), BAD)
def test_a_wrong_text_is_refused_with_the_place_and_the_reason(text: str, place: str, reason: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse_protobuf(text, {})
    assert place in str(caught.value)
    assert reason in str(caught.value)


NOT_SUPPORTED = ("not supported", "edition 2023", "before the first declaration")


@pytest.mark.parametrize("text", [text for text, _, reason in BAD if reason not in NOT_SUPPORTED])
def test_protoc_refuses_the_same_texts(text: str, tmp_path: Path) -> None:
    (tmp_path / "bad.proto").write_text(text, encoding="utf-8")
    well_known = str(files("grpc_tools") / "_proto")
    arguments = ["protoc", f"-I{tmp_path}", f"-I{well_known}", f"--descriptor_set_out={tmp_path / 'out'}", "bad.proto"]
    assert protoc.main(arguments) != 0


@pytest.mark.parametrize(("depth", "accepted"), [(31, True), (32, False)])
def test_messages_nest_as_deep_as_protoc_lets_them(depth: int, accepted: bool, tmp_path: Path) -> None:
    text = 'syntax = "proto3";' + "".join(f"message A{n} {{" for n in range(depth)) + "}" * depth
    (tmp_path / "deep.proto").write_text(text, encoding="utf-8")
    compiled_well = protoc.main(["protoc", f"-I{tmp_path}", f"--descriptor_set_out={tmp_path / 'out'}", "deep.proto"])
    assert (compiled_well == 0) == accepted
    if accepted:
        assert parse_protobuf(text, {}).first_message() is not None
    else:
        with pytest.raises(InvalidSchema, match="levels deep"):
            parse_protobuf(text, {})

"""Built-in ``.proto`` files, which every schema can import without a reference."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import MappingProxyType

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from goqueue.schemas.protobuf.proto_linker import link_types, symbols_of, visible_files
from goqueue.schemas.protobuf.proto_options import set_known_options
from goqueue.schemas.protobuf.proto_parser import parse_proto

_GOOGLE = (
    "any", "source_context", "descriptor", "duration", "empty", "field_mask", "struct", "timestamp", "type", "api",
    "wrappers",
)  # fmt: skip

# Files that the serializers of Confluent's clients expect: metadata of fields, and exact decimal numbers.
_CONFLUENT = {
    "confluent/meta.proto": """
        syntax = "proto3";
        package confluent;
        import "google/protobuf/descriptor.proto";
        option java_package = "io.confluent.protobuf";
        option java_outer_classname = "MetaProto";
        message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
    """,
    "confluent/type/decimal.proto": """
        syntax = "proto3";
        package confluent.type;
        option java_package = "io.confluent.protobuf.type";
        option java_outer_classname = "DecimalProto";
        option java_multiple_files = true;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
    """,
}


@cache
def builtin_files() -> MappingProxyType[str, FileDescriptorProto]:
    """The built-in files by import name; each comes after its own imports."""
    files: dict[str, FileDescriptorProto] = {}
    for name in _GOOGLE:
        module = import_module(f"google.protobuf.{name}_pb2")
        files[f"google/protobuf/{name}.proto"] = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    for name, text in _CONFLUENT.items():
        parsed = parse_proto(text)
        set_known_options(parsed)
        symbols = symbols_of(parsed.descriptor)
        for imported in visible_files(parsed.descriptor, files):
            symbols |= symbols_of(imported)
        link_types(parsed, symbols)
        parsed.descriptor.name = name
        files[name] = parsed.descriptor
    return MappingProxyType(files)

"""Options of a ``.proto`` text: built-in ones, and those that files declare as extensions."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf import descriptor_pb2, text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from goqueue.schemas.protobuf.proto_file import Options, OptionUse, ParsedFile
from goqueue.schemas.protobuf.proto_linker import OTHER, Symbols, find
from goqueue.schemas.protobuf.proto_tokens import Tokens, is_whole, shortened, whole

MAX_CUSTOM_OPTIONS = 10_000


def set_known_options(parsed: ParsedFile) -> list[OptionUse]:
    """Set the built-in options; returns those that need the extensions of imported files."""
    custom: list[OptionUse] = []
    for use in parsed.options:
        if any(part.is_extension for part in use.name):
            custom.append(use)
        elif len(use.name) > 1 or not _set_plainly(use):
            _set_by_text(use, use.owner, [part.name for part in use.name], parsed.tokens, None)
    _refuse_repeated(parsed)
    return custom


def set_custom_options(parsed: ParsedFile, uses: Sequence[OptionUse], symbols: Symbols, pool: DescriptorPool) -> None:
    """Set the options that are extensions. ``pool`` holds the file itself and all its imports."""
    if len(uses) > MAX_CUSTOM_OPTIONS:
        raise parsed.tokens.error(
            f"the schema sets more than {MAX_CUSTOM_OPTIONS} options that are extensions", uses[MAX_CUSTOM_OPTIONS].at
        )
    targets: dict[int, tuple[Options, Message]] = {}
    for use in uses:
        entry = targets.get(id(use.owner))
        if entry is None:
            entry = targets[id(use.owner)] = (use.owner, _with_extensions(use, parsed.tokens, pool))
        _set_by_text(use, entry[1], _custom_path(use, parsed, symbols), parsed.tokens, pool)
    for owner, target in targets.values():
        owner.Clear()
        owner.MergeFromString(target.SerializeToString(deterministic=True))


def _custom_path(use: OptionUse, parsed: ParsedFile, symbols: Symbols) -> list[str]:
    """Parts of an option's name in the notation of the text format, with extensions by their full names."""
    scope = parsed.descriptor.package if isinstance(use.owner, descriptor_pb2.FileOptions) else use.scope
    path = []
    for part in use.name:
        if not part.is_extension:
            path.append(part.name)
            continue
        full = find(part.name, scope, symbols, (OTHER,))
        if full is None:
            raise parsed.tokens.error(
                f"the option ({shortened(part.name)}) is not defined here, nor in an imported file", use.at
            )
        path.append(f"[{full}]")
    return path


def _with_extensions(use: OptionUse, tokens: Tokens, pool: DescriptorPool) -> Message:
    """The options of one owner, as a message type that knows the extensions of ``pool``."""
    try:
        described = pool.FindMessageTypeByName(use.owner.DESCRIPTOR.full_name)
    except KeyError:
        raise tokens.error(
            "the option is not defined: one in parentheses needs an import that declares it, as an extension of what "
            "google/protobuf/descriptor.proto has",
            use.at,
        ) from None
    target: Message = GetMessageClass(described)()
    target.MergeFromString(use.owner.SerializeToString())
    return target


def _refuse_repeated(parsed: ParsedFile) -> None:
    """Refuse an option that is set twice, as protoc does; a repeated option may be set once per element."""
    seen: set[tuple[int, tuple[object, ...]]] = set()
    for use in parsed.options:
        if len(use.name) > 1 or use.name[0].is_extension:
            continue
        described = use.owner.DESCRIPTOR.fields_by_name.get(use.name[0].name)
        if described is None or described.is_repeated:
            continue
        key = (id(use.owner), use.name)
        if key in seen:
            raise parsed.tokens.error(f"the option {use.name[0].name} is set twice", use.at)
        seen.add(key)


def _set_plainly(use: OptionUse) -> bool:
    """Set an option of the common kinds directly, without the text format. ``False`` if it is not of these kinds."""
    described = use.owner.DESCRIPTOR.fields_by_name.get(use.name[0].name)
    if described is None or described.is_repeated:
        return False
    kind = described.cpp_type
    value: bool | str | int
    if kind == FieldDescriptor.CPPTYPE_BOOL and use.value.kind == "word" and use.value.text in ("true", "false"):
        value = use.value.text == "true"
    elif kind == FieldDescriptor.CPPTYPE_ENUM and use.value.kind == "word":
        assert described.enum_type is not None
        constant = described.enum_type.values_by_name.get(use.value.text)
        if constant is None:
            return False
        value = constant.number
    elif described.type == FieldDescriptor.TYPE_STRING and use.value.kind == "string":
        try:
            value = use.value.string.decode("utf-8")
        except UnicodeDecodeError:
            return False
    else:
        return False
    setattr(use.owner, described.name, value)
    return True


def _set_by_text(
    use: OptionUse, target: Message, path: Sequence[str], tokens: Tokens, pool: DescriptorPool | None
) -> None:
    value = use.value
    if value.kind == "number" and is_whole(value.text) and whole(value.text) >= 1 << 64:
        raise tokens.error(f"the option's number {shortened(value.text)} is too large", use.at)
    text = f"{{ {value.text} }}" if value.kind == "message" else f": {value.text}"
    for name in reversed(path):
        text = f"{name} {text}" if text.startswith(("{", ":")) else f"{name} {{ {text} }}"
    shown = ".".join(f"({part.name})" if part.is_extension else part.name for part in use.name)
    try:
        text_format.Merge(text, target, descriptor_pool=pool)
    except (text_format.ParseError, DecodeError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = str(error).partition(" : ")[2] or str(error)
        raise tokens.error(f"the option {shortened(shown)} cannot be set: {reason[:300]}", use.at) from None

"""Compatibility of Protobuf schemas: whether the reader's schema can read the writer's data.

The rules and their names are those of Confluent's registry, so that a change accepted there is accepted here. Fields
are compared by number, messages by their names within the package, and the package must not change. Always compatible
are: adding messages, enums and enum values; adding or removing fields that are not required; renaming fields; changing
a string or bytes field to repeated or back; moving a field out of a oneof; removing a oneof with all its fields.

Two of these rules are more lenient than the data allows, and are kept since users rely on them: a proto3 number without
a label may become ``repeated``, and an optional string or message of proto2 may become required.
"""

from __future__ import annotations

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from goqueue.schemas.base import Incompatibility
from goqueue.schemas.protobuf.protobuf_types import (
    TYPES_OF_KIND,
    FieldsOfMessage,
    MessageType,
    TypeIndex,
    described,
    is_scalar,
    kind_of,
    label_of,
)

MAX_REASONS = 100


def cannot_read(reader: TypeIndex, writer: TypeIndex) -> list[Incompatibility]:
    """Reasons why the reader's schema cannot read data of the writer's, at most a hundred."""
    return _Comparison(reader, writer).run()


_Pair = tuple[str, str]
"""Full names of two messages that are compared: the writer's and the reader's."""


class _Comparison:
    def __init__(self, reader: TypeIndex, writer: TypeIndex) -> None:
        self._reader = reader
        self._writer = writer
        self._reasons: list[Incompatibility] = []
        self._pending: list[_Pair] = []
        self._known: set[_Pair] = set()
        self._broken: set[_Pair] = set()
        self._users: dict[_Pair, list[tuple[_Pair, str]]] = {}
        """Fields that use each pair from an imported file, with the pairs that these fields belong to."""

    def run(self) -> list[Incompatibility]:
        self._start()
        while self._pending and len(self._reasons) < MAX_REASONS:
            pair = self._pending.pop()
            before = len(self._reasons)
            self._compare_messages(pair)
            if len(self._reasons) > before:
                self._broken.add(pair)
        self._propagate()
        return self._reasons[:MAX_REASONS]

    def _start(self) -> None:
        """Pair the messages of the two files by name."""
        was, now = self._writer.file.package, self._reader.file.package
        if was != now:
            self._add(
                "PACKAGE_CHANGED",
                "/",
                f"the writer's package is {was or 'not named'}, the reader's {now or 'not named'}; keep it: it is "
                "a part of every message's name",
            )
        readers = {found.local_name: name for name, found in self._reader.own.items()}
        gone: list[str] = []
        # Reversed, since the pair enqueued last is compared first.
        for name, found in reversed(self._writer.own.items()):
            if found.message.options.map_entry:
                continue
            match = readers.get(found.local_name)
            if match is not None:
                self._enqueue((name, match))
            else:
                gone.append(found.local_name)
        removed = set(gone)
        for local in reversed(gone):
            if local.rpartition(".")[0] not in removed:
                self._add(
                    "MESSAGE_REMOVED",
                    _path(local),
                    f"the writer's message {local} is gone; keep it, even if it is not used any more",
                )

    def _enqueue(self, pair: _Pair) -> None:
        if pair not in self._known:
            self._known.add(pair)
            self._pending.append(pair)

    def _add(self, rule: str, path: str, message: str) -> None:
        self._reasons.append(Incompatibility(rule, path, message))

    def _propagate(self) -> None:
        """Mark every field whose type cannot be read as unreadable, through any number of imported messages."""
        pending = list(self._broken)
        named: set[str] = set()
        while pending and len(self._reasons) < MAX_REASONS:
            pair = pending.pop()
            for user, path in self._users.get(pair, ()):
                if path not in named:
                    named.add(path)
                    self._add(
                        "FIELD_NAMED_TYPE_CHANGED",
                        path,
                        f"the field's type, the imported message {pair[1][1:]}, changed so that it cannot be read",
                    )
                if user not in self._broken:
                    self._broken.add(user)
                    pending.append(user)

    def _compare_messages(self, pair: _Pair) -> None:
        old, new = self._writer.messages[pair[0]], self._reader.messages[pair[1]]
        before, after = FieldsOfMessage(old), FieldsOfMessage(new)
        path = _path(new.local_name)
        self._compare_oneofs(before, after, path)
        for number in sorted(before.by_number.keys() | after.by_number.keys()):
            was, now = before.by_number.get(number), after.by_number.get(number)
            oneof = (after if now is not None else before).oneof_of.get(number)
            where = f"{path}/{oneof}/{number}" if oneof else f"{path}/{number}"
            if now is None and was is not None:
                self._removed(old, was, before, after, where)
            elif was is None and now is not None:
                if new.is_required(now):
                    self._add(
                        "REQUIRED_FIELD_ADDED",
                        where,
                        f"the required field {now.name} is new, and data without it cannot be read; make it optional",
                    )
            elif was is not None and now is not None:
                self._compare_fields(pair, old, was, new, now, where)

    def _removed(
        self, old: MessageType, was: FieldDescriptorProto, before: FieldsOfMessage, after: FieldsOfMessage, where: str
    ) -> None:
        oneof = before.oneof_of.get(was.number)
        if oneof is not None:
            if oneof in after.oneofs or any(number in after.by_number for number in before.oneofs[oneof]):
                self._add(
                    "ONEOF_FIELD_REMOVED",
                    where,
                    f"the field {was.name} was taken out of the oneof {oneof}, and data that has it looks as if "
                    "nothing were set; keep it",
                )
        elif old.is_required(was):
            self._add(
                "REQUIRED_FIELD_REMOVED",
                where,
                f"the required field {was.name} is gone; keep it, or make it optional first",
            )

    def _compare_oneofs(self, before: FieldsOfMessage, after: FieldsOfMessage, path: str) -> None:
        """Refuse fields that could be set together in the writer's schema and exclude one another in the reader's."""
        for name, numbers in after.oneofs.items():
            origins = set()
            moved = []
            for number in numbers:
                oneof = before.oneof_of.get(number)
                if oneof is not None:
                    origins.add(oneof)
                elif number in before.by_number:
                    moved.append(after.by_number[number].name)
            if len(origins) + len(moved) <= 1:
                continue
            if len(moved) > 1:
                self._add(
                    "MULTIPLE_FIELDS_MOVED_TO_ONEOF",
                    f"{path}/{name}",
                    f"the fields {', '.join(moved[:10])} could be set together, but exclude one another in the oneof "
                    f"{name}; at most one field may move into a new oneof",
                )
            else:
                self._add(
                    "FIELD_MOVED_TO_EXISTING_ONEOF",
                    f"{path}/{name}",
                    f"the oneof {name} joins fields that could be set together before; a field may move into a oneof "
                    "only if the oneof's other fields are new",
                )

    def _compare_fields(
        self,
        pair: _Pair,
        old: MessageType,
        was: FieldDescriptorProto,
        new: MessageType,
        now: FieldDescriptorProto,
        where: str,
    ) -> None:
        old_entry, new_entry = self._map_entry(self._writer, was), self._map_entry(self._reader, now)
        if old_entry is None and new_entry is None and not is_scalar(was) and not is_scalar(now):
            before, after = old.is_delimited(was), new.is_delimited(now)
            if before != after:
                self._encoding_changed(now, where, was_delimited=before)
                return
        if old_entry is None and new_entry is None:
            self._compare_types(pair, was, now, where, now.name)
            if is_scalar(was) and is_scalar(now) and kind_of(was) == kind_of(now):
                self._compare_labels(label_of(old, was), label_of(new, now), was, now, where)
        elif old_entry is None or new_entry is None:
            self._kind_changed(now, where, "a map" if old_entry else described(was), "a map" if new_entry else None)
        else:
            self._compare_types(pair, old_entry.field[0], new_entry.field[0], where, f"{now.name} (its keys)")
            self._compare_types(pair, old_entry.field[1], new_entry.field[1], where, f"{now.name} (its values)")

    @staticmethod
    def _map_entry(index: TypeIndex, field: FieldDescriptorProto) -> DescriptorProto | None:
        if field.type != FieldDescriptorProto.TYPE_MESSAGE:
            return None
        found = index.messages[field.type_name].message
        return found if found.options.map_entry else None

    def _kind_changed(self, now: FieldDescriptorProto, where: str, before: str, after: str | None) -> None:
        self._add(
            "FIELD_KIND_CHANGED",
            where,
            f"the field {now.name} was {before} and is {after or described(now)}; a field stays a plain value, a "
            "message or a map: use another number for the new field",
        )

    def _encoding_changed(self, now: FieldDescriptorProto, where: str, *, was_delimited: bool) -> None:
        ways = ["behind its length", "between two marks, as a group is"]
        self._add(
            "FIELD_KIND_CHANGED",
            where,
            f"the message {now.name} was written {ways[was_delimited]}, and is now read as one "
            f"{ways[not was_delimited]}; keep how it is encoded, or use another number for the new field",
        )

    def _compare_types(
        self, pair: _Pair, was: FieldDescriptorProto, now: FieldDescriptorProto, where: str, shown: str
    ) -> None:
        if is_scalar(was) != is_scalar(now):
            self._kind_changed(now, where, described(was), None)
        elif not is_scalar(was):
            self._compare_named(pair, was, now, where, shown)
        elif kind_of(was) != kind_of(now):
            self._add(
                "FIELD_SCALAR_KIND_CHANGED",
                where,
                f"the field {shown} was {described(was)} and is {described(now)}; "
                f"{TYPES_OF_KIND[kind_of(was)]} would be read",
            )

    def _compare_named(
        self, pair: _Pair, was: FieldDescriptorProto, now: FieldDescriptorProto, where: str, shown: str
    ) -> None:
        old, new = self._writer.messages[was.type_name], self._reader.messages[now.type_name]
        if old.local_name != new.local_name:
            self._add(
                "FIELD_NAMED_TYPE_CHANGED",
                where,
                f"the field {shown} was of the message {old.local_name} and is of {new.local_name}; keep the message, "
                "or use another number for the new field",
            )
        elif not (old.is_own and new.is_own):
            # Messages that the schema declares itself are compared in any case; imported ones only if they are used.
            used = (was.type_name, now.type_name)
            self._users.setdefault(used, []).append((pair, where))
            self._enqueue(used)

    def _compare_labels(
        self, old: str | None, new: str | None, was: FieldDescriptorProto, now: FieldDescriptorProto, where: str
    ) -> None:
        if old is None or new is None or old == new or kind_of(was) == "string":
            return
        self._add(
            "FIELD_NUMERIC_LABEL_CHANGED",
            where,
            f"the number {now.name} was {old} and is {new}; numbers keep their label: use another number for the new "
            "field",
        )


def _path(local_name: str) -> str:
    return "#/" + local_name.replace(".", "/")

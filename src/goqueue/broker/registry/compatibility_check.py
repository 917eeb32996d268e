"""Whether a schema is compatible with the versions that its subject has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from goqueue.broker.registry.parsed_schemas import ParsedSchemas
from goqueue.coordination.schema_records import Version
from goqueue.coordination.schemas import Schemas
from goqueue.model.errors import IncompatibleSchema, InvalidSchema, SubjectNotFound, VersionNotFound
from goqueue.schemas.base import TOO_COMPLEX, Incompatibility, ParsedSchema

MOST_COMPARED = 8 << 20
"""Limit on the characters of all versions that one schema is compared with."""
_COMPARED_AT_ONCE = 20
_SHOWN_REASONS = 10
_MOST_REASONS = 1_000


class _Level(NamedTuple):
    """What a compatibility level asks of a new schema."""

    reads_older: bool = False
    read_by_older: bool = False
    with_all: bool = False
    """Not only with the latest version."""


_LEVELS = {
    "NONE": _Level(),
    "BACKWARD": _Level(reads_older=True),
    "FORWARD": _Level(read_by_older=True),
    "FULL": _Level(reads_older=True, read_by_older=True),
    "BACKWARD_TRANSITIVE": _Level(reads_older=True, with_all=True),
    "FORWARD_TRANSITIVE": _Level(read_by_older=True, with_all=True),
    "FULL_TRANSITIVE": _Level(reads_older=True, read_by_older=True, with_all=True),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a schema is compatible. ``problems`` are by version."""

    problems: dict[int, list[Incompatibility]] = field(default_factory=dict)

    @property
    def is_compatible(self) -> bool:
        return not self.problems

    def messages(self) -> list[str]:
        return [
            f"{each.rule} at {each.path} (version {version}): {each.message}"
            for version, found in self.problems.items()
            for each in found
        ]


class CompatibilityCheck:
    def __init__(self, state: Callable[[], Schemas], parsed: ParsedSchemas) -> None:
        """``state`` returns the registry's state, which another object replaces when the disk fails."""
        self._state = state
        self._parsed = parsed

    def find_version(self, subject: str, version: int | None) -> Version:
        """The version to compare with. Registries report a missing subject as a missing version here."""
        try:
            return self._state().version(subject, version)
        except SubjectNotFound as error:
            raise VersionNotFound(f"Version {version} not found. {error}") from None

    def live_versions(self, subject: str) -> list[Version]:
        known = self._state().subjects.get(subject)
        return [] if known is None else known.live()

    def relevant_versions(self, subject: str) -> list[Version]:
        """The versions that a new one must be compatible with, the latest first."""
        live = sorted(self.live_versions(subject), key=lambda each: -each.version)
        level = _LEVELS[self._state().compatibility(subject)]
        if not (level.reads_older or level.read_by_older):
            return []
        return live if level.with_all else live[:1]

    async def verdict(self, subject: str, parsed: ParsedSchema, versions: Sequence[Version]) -> Verdict:
        level = self._state().compatibility(subject)
        size = sum(len(self._state().records[each.schema_id].text) for each in versions)
        if len(versions) > 1 and size > MOST_COMPARED:
            raise InvalidSchema(
                f"subject {subject[:300]!r} has {len(versions)} versions with {size} characters in all to compare "
                f"with; {MOST_COMPARED} are allowed. Delete versions that nobody needs, or set a compatibility level "
                "that is not transitive"
            )
        problems: dict[int, list[Incompatibility]] = {}
        for start in range(0, len(versions), _COMPARED_AT_ONCE):
            some = versions[start : start + _COMPARED_AT_ONCE]
            older = {each.version: await self._parsed.get(each.schema_id) for each in some}
            problems |= await self._parsed.in_thread(_all_differences, level, parsed, older)
            reasons = [reason for found in problems.values() for reason in found]
            if len(reasons) >= _MOST_REASONS or any(reason.rule == TOO_COMPLEX for reason in reasons):
                # Incompatible, whatever the other versions say.
                break
        return Verdict(problems)


def _all_differences(
    level: str, new: ParsedSchema, versions: dict[int, ParsedSchema]
) -> dict[int, list[Incompatibility]]:
    """By version, of those that differ."""
    return {version: found for version, old in versions.items() if (found := _differences(level, new, old))}


def _differences(level: str, new: ParsedSchema, old: ParsedSchema) -> list[Incompatibility]:
    rules = _LEVELS[level]
    if not (rules.reads_older or rules.read_by_older):
        return []
    if new.kind != old.kind:
        return [
            Incompatibility(
                "SCHEMA_TYPE_CHANGED", "/", f"the subject has {old.kind} schemas; no {new.kind} schema can follow them"
            )
        ]
    found: list[Incompatibility] = []
    if rules.reads_older:
        found += new.cannot_read(old)
    if rules.read_by_older:
        found += old.cannot_read(new)
    return found


def incompatible(subject: str, level: str, verdict: Verdict) -> IncompatibleSchema:
    messages = verdict.messages()
    more = "" if len(messages) <= _SHOWN_REASONS else f"; and {len(messages) - _SHOWN_REASONS} more"
    listed = "; ".join(messages[:_SHOWN_REASONS])
    return IncompatibleSchema(
        f'Schema being registered is incompatible with an earlier schema for subject "{subject[:300]}": it is not '
        f"{level} compatible: {listed}{more}"
    )

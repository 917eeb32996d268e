"""Decisions on the settings of a group: with which it is created, and which of them can change."""

from __future__ import annotations

from typing import Any

from goqueue.coordination.group import Group, GroupChanged, GroupMade
from goqueue.model.errors import GroupConflict, InvalidSettings
from goqueue.model.fields import specs
from goqueue.model.group_settings import GroupSettings, check_together
from goqueue.model.ids import GroupId


def decide_creation(
    name: str, group_id: GroupId, overrides: dict[str, Any], defaults: GroupSettings, now_ns: int
) -> GroupMade:
    """A new group. Its fixed settings are recorded, so that other defaults later do not change them."""
    chosen = defaults.with_overrides(overrides)
    check_together(chosen.kind, chosen.mode, chosen.ordering)
    fixed = {each: getattr(chosen, each) for each, spec in specs(GroupSettings).items() if spec.fixed}
    return GroupMade(name, group_id, overrides, now_ns, fixed)


def initial_overrides(initial: dict[str, Any], wanted: dict[str, Any], defaults: GroupSettings) -> dict[str, Any]:
    """With which settings a join creates a group: ``initial`` too, unless these do not go together with the others."""
    both = initial | wanted
    chosen = defaults.with_overrides(both)
    try:
        check_together(chosen.kind, chosen.mode, chosen.ordering)
    except InvalidSettings:
        return wanted
    return both


def decide_change(group: Group, effective: GroupSettings, wanted: dict[str, Any]) -> list[GroupChanged]:
    """Change settings of a group that exists. Fixed ones can only be named, or changed while it has no members."""
    members = len(group.state.members)
    for each, spec in specs(GroupSettings).items():
        if each not in wanted or not spec.fixed or getattr(effective, each) == wanted[each]:
            continue
        has = f"group {group.name!r} has {each} {getattr(effective, each)!r}, which"
        if not spec.while_empty:
            raise GroupConflict(f"{has} cannot be changed to {wanted[each]!r}")
        if members:
            raise GroupConflict(
                f"{has} can be changed to {wanted[each]!r} only while it has no members; it has {members}"
            )
    chosen = effective.with_overrides(wanted)
    check_together(chosen.kind, chosen.mode, chosen.ordering)
    overrides = group.state.overrides | wanted
    return [] if overrides == group.state.overrides else [GroupChanged(group.name, overrides)]

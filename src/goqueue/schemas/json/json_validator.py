"""Validation of messages against a JSON schema."""

from __future__ import annotations

from collections.abc import Sequence

import jsonschema_rs
import msgspec

from goqueue.schemas.json.json_costs import Costs, parts_of
from goqueue.schemas.json.json_graph import SchemaGraph
from goqueue.schemas.json.json_text import pointer

_MOST_TEXT = 300
_MOST_PATH = 200
# Work is counted in units of about ten nanoseconds.
_MOST_WORK = 5_000_000
_MOST_WORK_ON_LOOP = 100_000
_MOST_WORK_EXPLAINED = 50_000
"""Limit on the work of explaining an error if the schema has alternatives: each that fails builds an error, which is
slow. Beyond the limit, an invalid value is rejected without the location of the problem."""
_MOST_ON_LOOP = 64 << 10
_VALUES_AT_A_STRETCH = 50


class JsonValidator:
    """A value is valid if it is JSON in UTF-8 and satisfies the schema. Only invalid values are explained."""

    def __init__(self, compiled: jsonschema_rs.Validator, graph: SchemaGraph, costs: Costs) -> None:
        self._compiled = compiled
        self._decoder = msgspec.json.Decoder()
        self._costs = costs
        self._explained = 0
        if graph.explains_quickly():
            self._explained = _MOST_WORK_EXPLAINED if graph.has_alternatives() else _MOST_WORK
        self._surely_cheap = self._costs.most_bytes(_MOST_WORK)
        """Size up to which every value is cheap enough, without counting its parts."""
        on_loop = self._costs.most_bytes(_MOST_WORK_ON_LOOP - _VALUES_AT_A_STRETCH * self._costs.once)
        self.most_on_loop = min(on_loop, _MOST_ON_LOOP)

    def check(self, values: Sequence[bytes]) -> list[str | None]:
        decode, is_valid = self._decoder.decode, self._compiled.is_valid
        found: list[str | None] = []
        for value in values:
            if len(value) > self._surely_cheap and (too_costly := self._too_costly(value)) is not None:
                found.append(too_costly)
                continue
            try:
                decoded = decode(value)
                found.append(None if is_valid(decoded) else self._problem(decoded, value))
            except RecursionError:
                found.append("the value is nested too deep")
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                found.append(f"the value is no JSON in UTF-8: {str(error)[:_MOST_TEXT]}")
            except Exception as error:
                found.append(f"the value cannot be checked: {str(error)[:_MOST_TEXT]}")
        return found

    def _too_costly(self, value: bytes) -> str | None:
        parts, most = parts_of(value), self._costs.most_parts(_MOST_WORK, len(value))
        if parts <= most:
            return None
        return (
            f"the schema is too costly for a value of this size: it has {len(value)} bytes and up to {parts} parts, "
            f"and with as much as the schema looks at in each, {most} parts are allowed in so many bytes; split the "
            "value, or use fewer alternatives in the schema"
        )

    def _problem(self, decoded: object, value: bytes) -> str:
        if parts_of(value) > self._costs.most_parts(self._explained, len(value)):
            return "the value does not fit the schema; with this schema it would take too long to find where"
        try:
            self._compiled.validate(decoded)
        except jsonschema_rs.ValidationError as error:
            where = pointer("", *error.instance_path) or "/"
            if len(where) > _MOST_PATH:
                where = where[:_MOST_PATH] + "..."
            return f"{where}: {_shortened(error)}"
        return "the value does not fit the schema"


def _shortened(error: jsonschema_rs.ValidationError) -> str:
    text = error.message
    return text if len(text) <= _MOST_TEXT else text[:_MOST_TEXT] + "..."

"""What the OpenAPI document says of values beyond what the types do: as strict as the broker.

Types say what can be decoded. Names, durations and numbers are checked behind that, by code that tells what would be
right, and some bounds come from the configuration. The document has both, so that a client that is made from it sends
nothing that is refused for its form.
"""

from __future__ import annotations

from typing import Any

from goqueue.broker.operations.limits import MAX_CLIENT_ID, MAX_TOPICS_OF_MEMBER
from goqueue.model.config import Config
from goqueue.model.fields import FieldSpec, specs
from goqueue.model.group_settings import GroupSettings
from goqueue.model.message import PRIORITY_LABELS
from goqueue.model.names import MAX_GROUP_NAME_LENGTH, MAX_TOPIC_NAME_LENGTH
from goqueue.model.topic_settings import MAX_PARTITIONS, TopicSettings
from goqueue.wire.internal_headers import MAX_DEDUP_ID_BYTES

Schema = dict[str, Any]

_INT64 = (1 << 63) - 1
_HOUR_MS = 3_600_000
_NAME = r"^(?!__)(?!\.{1,2}$)[A-Za-z0-9._-]+$"
_TOPIC = {"pattern": _NAME, "minLength": 1, "maxLength": MAX_TOPIC_NAME_LENGTH}
_GROUP = {"pattern": _NAME, "minLength": 1, "maxLength": MAX_GROUP_NAME_LENGTH}
_DURATION = {"pattern": r"^\s*([0-9]{1,15}(\.[0-9]{1,9})?(ms|s|m|h|d))+\s*$", "maxLength": 200}
_INSTANT = {
    "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})$"
}
_PRINTABLE = r"^[^\u0000-\u001f\u007f-\u00a0]*$"
_PARTITION = {"minimum": 0, "maximum": MAX_PARTITIONS - 1}
_WHOLE = {"minimum": 0, "maximum": _INT64}
_PRIORITY = {
    "oneOf": [{"type": "string", "enum": list(PRIORITY_LABELS)}, {"type": "integer", "minimum": 0, "maximum": 4}]
}

_WHEREVER: dict[str, Schema] = {
    "topic_name": _TOPIC, "topic": _TOPIC, "group_id": _GROUP, "group": _GROUP, "consumer_group": _GROUP,
    "partition": _PARTITION, "partition_id": _PARTITION, "offset": _WHOLE, "generation": _WHOLE, "sequence": _WHOLE,
    "wait": _DURATION, "timeout": _DURATION, "delay": _DURATION, "ttl": _DURATION, "session_timeout": _DURATION,
    "slower_than": _DURATION, "deliverAt": _INSTANT, "timestamp": _INSTANT, "from_time": _INSTANT, "since": _INSTANT,
    "until": _INSTANT, "before": _INSTANT, "instant": _INSTANT, "start": _INSTANT, "end": _INSTANT,
    "dedup_id": {"minLength": 1, "maxLength": MAX_DEDUP_ID_BYTES},
    "client_id": {"pattern": _PRINTABLE, "minLength": 1, "maxLength": MAX_CLIENT_ID},
    "instance_id": {"pattern": _PRINTABLE, "maxLength": MAX_CLIENT_ID},
    "trace_id": {"pattern": "^(?!0{32}$)[0-9A-Fa-f]{32}$"},
}  # fmt: skip
"""By the name of a parameter, or of a field in a body that is sent: it means the same wherever it is."""
_REGISTRY = ("/subjects", "/schemas", "/config", "/mode", "/compatibility", "/contexts")
"""Their clients are not ours: what they send is taken as registries take it."""


def bound(document: Schema, config: Config) -> Schema:
    """Add to a document what the broker asks for."""
    http = config.http
    for path, methods in document["paths"].items():
        if path.startswith(_REGISTRY):
            continue
        for operation in methods.values():
            for parameter in operation.get("parameters", []):
                _tighten(parameter["schema"], _WHEREVER.get(parameter["name"], {}))
                if path.startswith("/topics/") and path.endswith("/messages") and parameter["name"] == "limit":
                    parameter["schema"]["maximum"] = http.max_read_messages
                if parameter["name"] == "max_bytes":
                    parameter["schema"]["maximum"] = http.max_read_bytes
                if parameter["name"] == "max_messages":
                    parameter["schema"]["maximum"] = config.limits.max_poll_messages
    schemas = document["components"]["schemas"]
    for name, schema in schemas.items():
        if name.endswith("Request") or name == "PublishMessage":
            for field, found in schema.get("properties", {}).items():
                _tighten(found, _WHEREVER.get(field, {}))
                if field == "timeout_ms":
                    _tighten(found, {"maximum": config.transactions.max_timeout_ms})
                if field == "priority":
                    found["oneOf"] = [*_PRIORITY["oneOf"], {"type": "null"}]
    _tighten(schemas["CreateTopicRequest"]["properties"]["name"], _TOPIC)
    _tighten(schemas["CreateTopicRequest"]["properties"]["num_partitions"], {"minimum": 1, "maximum": MAX_PARTITIONS})
    retention = specs(TopicSettings)["retention_ms"]
    hours = {"minimum": -(-int(retention.minimum) // _HOUR_MS), "maximum": int(retention.maximum) // _HOUR_MS}
    _tighten(schemas["CreateTopicRequest"]["properties"]["retention_hours"], hours)
    schemas["PublishRequest"]["properties"]["messages"]["maxItems"] = http.max_publish_messages
    wanted = schemas["JoinGroupRequest"]["properties"]["topics"]
    _tighten(wanted, {"minItems": 1, "maxItems": MAX_TOPICS_OF_MEMBER})
    _tighten(wanted["items"], _TOPIC)
    for name, kind in (
        ("CreateTopicRequest", TopicSettings), ("ChangeTopicRequest", TopicSettings),
        ("JoinGroupRequest", GroupSettings), ("ConfigureGroupRequest", GroupSettings),
    ):  # fmt: skip
        schemas[name]["properties"]["settings"] |= _settings(kind)
    # What is fixed once the topic exists is no change.
    change = schemas["ChangeTopicRequest"]["properties"]
    for name in (name for name, spec in specs(TopicSettings).items() if spec.fixed):
        del change["settings"]["properties"][name]
    change["unset"]["items"]["enum"] = list(change["settings"]["properties"])
    return document


def _tighten(schema: Schema, bounds: Schema) -> None:
    """A bound that is there already holds if it is the closer one."""
    for name, limit in bounds.items():
        given = schema.get(name)
        closer = max if name.startswith("min") else min
        schema[name] = limit if given is None or isinstance(limit, str) else closer(given, limit)


def _settings(kind: type) -> Schema:
    return {"properties": {name: _setting(spec) for name, spec in specs(kind).items()}, "additionalProperties": False}


def _setting(spec: FieldSpec) -> Schema:
    schema: Schema = {"description": spec.doc}
    if spec.unit == "choice":
        values = list(spec.choices)
        return {**schema, "oneOf": [{"type": "string", "enum": values}, {"type": "null"}]} if spec.inherits else {
            **schema, "type": "string", "enum": values,
        }  # fmt: skip
    if spec.unit == "flag":
        return {**schema, "type": ["boolean", "string"]}
    if spec.unit == "text":
        return {**schema, "type": "string", "minLength": int(spec.minimum), "maxLength": int(spec.maximum)}
    # Or a text with its unit, such as 7d.
    kinds = ["number" if spec.unit == "ratio" else "integer", "string"]
    if spec.unlimited or spec.inherits:
        kinds.append("null")
    return {**schema, "type": kinds, "minimum": spec.minimum, "maximum": spec.maximum}

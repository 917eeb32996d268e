"""Requests made from our own OpenAPI document, right and wrong ones; every answer is as the document says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from behaviour.process import BrokerProcess, broker_process
from hypothesis import HealthCheck, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from goqueue.wire.trace_context import derived_trace_id

EXAMPLES = int(os.environ.get("GOQUEUE_FUZZ", "400")) // 40
"""For each operation; there are many, and both right and wrong requests for most."""
TOPIC = "fuzzed"
REAL = {"partition_id": 0, "offset": 1, "trace_id": derived_trace_id(TOPIC, 0, 0)}
REAL |= {"schema_id": "1", "version": "latest"}
"""Where a delayed message waits, a trace, and a schema."""
DOCUMENTED_5XX = {501, 503, 507}
OPERATIONS = [
    ("GET", "/health"), ("GET", "/healthz"), ("GET", "/livez"), ("GET", "/readyz"), ("GET", "/version"),
    ("GET", "/stats"), ("GET", "/metrics"), ("GET", "/admin/backup"), ("GET", "/topics"), ("POST", "/topics"),
    ("GET", "/admin/damage"), ("POST", "/admin/topics/{topic_name}/damage/acknowledge"),
    ("GET", "/topics/{topic_name}"),
    ("PATCH", "/topics/{topic_name}"), ("DELETE", "/topics/{topic_name}"), ("GET", "/topics/{topic_name}/messages"),
    ("POST", "/topics/{topic_name}/messages"), ("GET", "/topics/{topic_name}/partitions/{partition_id}/messages"),
    ("POST", "/topics/{topic_name}/partitions/{partition_id}/messages"),
    ("GET", "/topics/{topic_name}/dead-letters"), ("POST", "/topics/{topic_name}/redrive"),
    ("GET", "/topics/{topic_name}/delayed"), ("GET", "/topics/{topic_name}/delayed/{offset}"),
    ("DELETE", "/topics/{topic_name}/delayed/{partition_id}/{offset}"),
    ("PATCH", "/topics/{topic_name}/delayed/{partition_id}/{offset}"),
    ("GET", "/delay/stats"), ("GET", "/priority/stats"),
    ("GET", "/groups"), ("GET", "/groups/{group_id}"), ("PUT", "/groups/{group_id}"), ("DELETE", "/groups/{group_id}"),
    ("POST", "/groups/{group_id}/join"), ("POST", "/groups/{group_id}/heartbeat"), ("POST", "/groups/{group_id}/leave"),
    ("GET", "/groups/{group_id}/poll"), ("GET", "/groups/{group_id}/offsets"), ("POST", "/groups/{group_id}/offsets"),
    ("GET", "/groups/{group_id}/messages"),
    ("POST", "/groups/{group_id}/reset"), ("POST", "/messages/ack"), ("POST", "/messages/nack"),
    ("POST", "/messages/reject"), ("POST", "/messages/visibility"), ("GET", "/reliability/stats"),
    ("GET", "/traces"), ("GET", "/traces/search"), ("GET", "/traces/stats"), ("GET", "/traces/{trace_id}"),
]  # fmt: skip
REGISTRY = [
    ("GET", "/subjects"), ("POST", "/subjects/{subject}"), ("DELETE", "/subjects/{subject}"),
    ("GET", "/subjects/{subject}/versions"), ("POST", "/subjects/{subject}/versions"),
    ("GET", "/subjects/{subject}/versions/{version}"), ("DELETE", "/subjects/{subject}/versions/{version}"),
    ("GET", "/subjects/{subject}/versions/{version}/schema"), ("GET", "/subjects/{subject}/metadata"),
    ("GET", "/subjects/{subject}/versions/{version}/referencedby"), ("GET", "/contexts"),
    ("POST", "/compatibility/subjects/{subject}/versions"), ("GET", "/config"), ("PUT", "/config"),
    ("POST", "/compatibility/subjects/{subject}/versions/{version}"), ("DELETE", "/config"),
    ("GET", "/config/{subject}"), ("PUT", "/config/{subject}"), ("DELETE", "/config/{subject}"),
    ("GET", "/mode"), ("PUT", "/mode"), ("DELETE", "/mode"),
    ("GET", "/mode/{subject}"), ("PUT", "/mode/{subject}"), ("DELETE", "/mode/{subject}"),
]  # fmt: skip
"""Each of these is there again under ``/schemas``."""
OPERATIONS += [
    ("POST", "/producers/init"), ("POST", "/producers/{producer_id}/heartbeat"), ("GET", "/transactions"),
    ("GET", "/transactions/stats"), ("GET", "/transactions/{transaction_id}"), ("GET", "/transactions/keys/{key}"),
    *(("POST", f"/transactions/{verb}") for verb in ("begin", "publish", "add-partition", "acks", "offsets")),
    *(("POST", f"/transactions/{verb}") for verb in ("prepare", "commit", "abort", "commit-many")),
    ("POST", "/transactions/{transaction_id}/abort"),
]  # fmt: skip
OPERATIONS += [
    ("GET", "/"), ("GET", "/metadata/id"), ("GET", "/metadata/version"),
    *REGISTRY, ("GET", "/schemas"), ("GET", "/schemas/types"), ("GET", "/schemas/stats"),
    ("GET", "/schemas/ids/{schema_id}"), ("GET", "/schemas/ids/{schema_id}/schema"), ("GET", "/schemas/guids/{guid}"),
    ("GET", "/schemas/ids/{schema_id}/subjects"), ("GET", "/schemas/ids/{schema_id}/versions"),
]  # fmt: skip
OPERATIONS += [("POST", "/admin/topics/{topic_name}/partitions"), ("POST", "/admin/topics/{topic_name}/purge")]
"""The last: the others need what is in the topic."""
CAN_BE_WRONG = [
    (method, path)
    for method, path in OPERATIONS
    if method in {"POST", "PATCH", "PUT"}
    or path.endswith(("/messages", "/dead-letters", "/delayed", "/delayed/{offset}", "/poll", "/priority/stats"))
    or path in {"/readyz", "/traces", "/traces/search", "/transactions"}
]
"""The others have no more than a name, and any text may be one."""

CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    # Waiting is bounded, or a random wait of 30 s would take its time.
    with broker_process(tmp_path_factory.mktemp("fuzz"), "--set", "http.max_wait_ms=5ms") as broker:
        yield broker
        assert not [event for event in broker.events() if event["level"] == "error"], broker.log()


@pytest.fixture(scope="module")
def session(broker: BrokerProcess) -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        settings = {"partitions": 2, "max_message_bytes": 4_096}
        session.post(f"{broker.url}/topics", json={"name": TOPIC, "settings": settings}).raise_for_status()
        messages: list[dict[str, Any]] = [{"value": "later", "partition": 0, "delay": f"{at}d"} for at in (1, 2)]
        messages += [{"value": f"{at}", "key": "k", "headers": {"h": ["1", "2"]}} for at in range(50)]
        session.post(f"{broker.url}/topics/{TOPIC}/messages", json={"messages": messages}).raise_for_status()
        schema = {"schema": '{"type": "array", "items": "int"}'}
        session.post(f"{broker.url}/subjects/{TOPIC}/versions", json=schema).raise_for_status()
        yield session


@pytest.fixture(scope="module")
def member_id(broker: BrokerProcess, session: requests.Session) -> str:
    """Someone in a group of the topic's name, who has left something in the dead letters."""
    group = f"{broker.url}/groups/{TOPIC}"
    joining = {"client_id": "fuzz", "topics": [TOPIC], "session_timeout": "30m"}
    member = str(session.post(f"{group}/join", json=joining).json()["member_id"])
    polled = session.get(f"{group}/poll", params={"member_id": member, "max_messages": 5}).json()["messages"]
    receipts = [message["receipt_handle"] for message in polled]
    session.post(f"{broker.url}/messages/reject", json={"receipt_handles": receipts}).raise_for_status()
    return member


@pytest.fixture(scope="module")
def document(broker: BrokerProcess) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_url(f"{broker.url}/openapi.json")


@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [
        *((*operation, GenerationMode.POSITIVE) for operation in OPERATIONS),
        *((*operation, GenerationMode.NEGATIVE) for operation in CAN_BE_WRONG),
    ],
)
def test_every_answer_is_as_the_document_says(
    method: str,
    path: str,
    mode: GenerationMode,
    document: schemathesis.BaseSchema,
    session: requests.Session,
    member_id: str,
) -> None:
    operation = document[path][method]
    # Groups are deleted and left under random names only.
    real = method != "DELETE" and not path.endswith("/leave")

    @seed(0)
    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: schemathesis.Case) -> None:
        check(case, session)
        if case.path_parameters and real:
            # Random names are hardly ever there; what happens to what is matters more.
            for name in case.path_parameters:
                case.path_parameters[name] = REAL.get(name, TOPIC)
            for fields in (case.query, case.body):
                if isinstance(fields, dict):
                    fields.update({name: member_id for name in fields if name == "member_id"})
                    fields.update({name: [TOPIC] for name in fields if name == "topics"})
                    fields.update({name: TOPIC for name in fields if name == "topic"})
            check(case, session)

    run()


def check(case: schemathesis.Case, session: requests.Session) -> None:
    response = case.call(session=session, timeout=30)
    assert response.status_code < 500 or response.status_code in DOCUMENTED_5XX, response.text
    case.validate_response(response, checks=CHECKS)
    if response.status_code >= 400:
        assert {"error", "code", "retriable"} <= response.json().keys()


def test_the_document_describes_every_path_of_the_contract_that_is_served(broker: BrokerProcess) -> None:
    with broker.client() as client:
        paths = client.get("/openapi.json").json()["paths"]
    served = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert served == {*OPERATIONS, *((method, f"/schemas{path}") for method, path in REGISTRY)}

"""A member of a group, as someone with an HTTP client would write it."""

from __future__ import annotations

from typing import Any

import httpx


def answered(answer: httpx.Response) -> Any:
    """The body of an answer that is expected to be good."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def refused(answer: httpx.Response, status: int, code: str) -> str:
    """The text of a refusal that is expected."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert body.keys() == {"error", "code", "retriable"}
    assert (body["code"], body["retriable"]) == (code, False)
    return str(body["error"])


def publish(client: httpx.Client, topic: str, *values: str, **fields: Any) -> None:
    messages = [{"value": value, **fields} for value in values]
    answered(client.post(f"/topics/{topic}/messages", json={"messages": messages}))


def settle(client: httpx.Client, verb: str, receipt: str | list[str], **fields: Any) -> httpx.Response:
    field = "receipt_handle" if isinstance(receipt, str) else "receipt_handles"
    return client.post(f"/messages/{verb}", json={field: receipt, **fields})


class Member:
    """Joins when it is made."""

    def __init__(self, client: httpx.Client, group: str, *topics: str, **fields: Any) -> None:
        self._client = client
        self.path = f"/groups/{group}"
        body = {"client_id": "worker", "topics": topics, **fields}
        self.joined = answered(client.post(f"{self.path}/join", json=body))
        self.id: str = self.joined["member_id"]
        self.generation: int = self.joined["generation"]

    def ask_poll(self, **query: Any) -> httpx.Response:
        return self._client.get(f"{self.path}/poll", params={"member_id": self.id, "timeout": "0s", **query})

    def poll(self, **query: Any) -> list[dict[str, Any]]:
        return list(answered(self.ask_poll(**query))["messages"])

    def receipts(self, **query: Any) -> list[str]:
        return [message["receipt_handle"] for message in self.poll(**query)]

    def heartbeat(self) -> dict[str, Any]:
        body = {"member_id": self.id, "generation": self.generation}
        return dict(answered(self._client.post(f"{self.path}/heartbeat", json=body)))

    def ask_commit(self, topic: str, offsets: dict[str, int], **fields: Any) -> httpx.Response:
        body = {"member_id": self.id, "offsets": {topic: offsets}, **fields}
        return self._client.post(f"{self.path}/offsets", json=body)

    def leave(self) -> dict[str, Any]:
        return dict(answered(self._client.post(f"{self.path}/leave", json={"member_id": self.id})))

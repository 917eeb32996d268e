"""Looks schemas up over HTTP as fast as a broker answers, from a process of its own.

``python -m bench.lookup_generator '{"host": …}'`` prints one JSON object.
"""

from __future__ import annotations

import json
import sys

import msgspec
import uvloop

from bench.load_generator import Checker, Load, Outcome, generate


class LookupJob(msgspec.Struct, frozen=True):
    """Which schemas to look up, and for how long."""

    host: str
    port: int
    schema_ids: list[int]
    load: Load


class _SchemaChecker(Checker):
    """Says of every answer whether it is a schema."""

    def check(self, status: bytes, body: bytes) -> None:
        if status != b"200" or not body.startswith(b'{"schema":'):
            raise RuntimeError(f"answer {self.answers} with status {status!r} is no schema: {body[:300]!r}")
        if self.answers % self._parse_every == 0:
            self.parsed += 1
            json.loads(json.loads(body)["schema"])
        self.answers += 1


async def _look_up(job: LookupJob) -> Outcome:
    requests = [
        f"GET /schemas/ids/{schema_id} HTTP/1.1\r\nHost: {job.host}:{job.port}\r\n"
        "Accept: application/vnd.schemaregistry.v1+json\r\n\r\n".encode()
        for schema_id in job.schema_ids
    ]
    return await generate(job.host, job.port, requests, _SchemaChecker(1, job.load.parse_every), job.load)


if __name__ == "__main__":
    print(msgspec.json.encode(uvloop.run(_look_up(msgspec.json.decode(sys.argv[1], type=LookupJob)))).decode())

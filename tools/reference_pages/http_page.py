"""``docs/reference/http.md``, from the OpenAPI document that a broker serves."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.request import urlopen

from goqueue.testing import running_broker
from reference_pages import http_types
from reference_pages.markdown import anchor, block, code, link, page, sentences, table

_METHODS = ("get", "post", "put", "patch", "delete")
_ALIAS = "/schemas"
# What the framework says of an answer that nobody described.
_UNSAID = {"Request fulfilled, document follows", "Document created, URL follows"}
_JSON = "application/json"
_ERROR = "ErrorResponse"

_INTRO = """\
# HTTP API

Every path that a broker answers. [The guide](../http.md) shows them at work. A running broker has a page to try them at
`/docs`, and the same as an OpenAPI document at `/openapi.json`.

- Every path is also there under `/v1`, such as `/v1/topics`.
- Bodies are JSON, and answers too, unless it says otherwise. A field that is not known is an error, not ignored.
- A field that may be absent may also be left out of a request."""

_ERRORS = """\
## Errors

An error has one of these statuses and [this body](#errorresponse); [its codes](../errors.md) are stable. Each request
below names those that it may meet."""


@dataclass(slots=True)
class Request:
    """A method on a path, and on others that do the same."""

    method: str
    path: str
    said: dict[str, Any]
    aliases: list[str] = field(default_factory=list)

    @property
    def heading(self) -> str:
        return f"{self.method.upper()} {self.path}"

    @property
    def bodies(self) -> Iterator[dict[str, Any]]:
        """What is sent, and what a good answer has: content by its type."""
        if "requestBody" in self.said:
            yield self.said["requestBody"]["content"]
        for status, answer in self.said["responses"].items():
            if status < "400":
                yield answer.get("content", {})


def http_page() -> str:
    """The text of the page."""
    with running_broker() as broker, urlopen(f"{broker.url}/openapi.json") as answer:
        document = json.load(answer)
    return HttpPage(document).text()


class HttpPage:
    """Requests by their tags; then the bodies that more than one of them, or other bodies, have."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._schemas: dict[str, http_types.Schema] = document["components"]["schemas"]
        self._requests = requests_of(document["paths"])
        self._usual = _usual_errors(self._requests)
        inside = {name for schema in self._schemas.values() for name in http_types.used_by(schema)}
        bodies = [kind["schema"] for one in self._requests for content in one.bodies for kind in content.values()]
        inside |= {name for body in bodies if not http_types.named(body) for name in http_types.used_by(body)}
        outside = Counter(name for body in bodies if (name := http_types.named(body)))
        self._asked = self._reachable(
            kind["schema"]
            for request in self._requests
            for kind in request.said.get("requestBody", {}).get("content", {}).values()
        )
        self._shared = sorted(inside | {name for name, count in outside.items() if count > 1} | {_ERROR})

    def text(self) -> str:
        errors = table(("Status", "Meaning"), [(status, said) for status, said in sorted(self._usual.items())])
        tags = dict.fromkeys(request.said["tags"][0] for request in self._requests)
        parts = [_INTRO, *(self._tag(tag) for tag in tags), _ERRORS, errors]
        parts.append("## Bodies\n\nThose that are part of others, or of more than one request.")
        for name in self._shared:
            parts += [f"### {name}", self._fields(name)]
        return page(*parts)

    def _tag(self, tag: str) -> str:
        own = [request for request in self._requests if request.said["tags"][0] == tag]
        rows = [(link(code(request.heading), anchor(request.heading)), request.said["summary"]) for request in own]
        return "\n\n".join(
            [f"## {tag}", table(("Request", "What it does"), rows), *(self._request(request) for request in own)]
        )

    def _request(self, request: Request) -> str:
        said = request.said
        about = f"{_ended(said['summary'])} {sentences(said.get('description', ''))}"
        parts = [f"### {request.heading}", _ended(about.rstrip())]
        if request.aliases:
            parts.append(f"The same at {', '.join(map(code, request.aliases))}.")
        parts.append(_parameters(said.get("parameters", [])))
        if body := said.get("requestBody"):
            parts.append(self._body("**Body**", body.get("description", ""), body["content"]))
        good = {status: answer for status, answer in said["responses"].items() if status < "400"}
        for status, answer in sorted(good.items()):
            text = answer.get("description", "")
            parts.append(self._body(f"**Answer {status}**", text, answer.get("content", {})))
        parts.append(self._errors(said["responses"]))
        return "\n\n".join(part for part in parts if part)

    def _body(self, title: str, description: str, content: dict[str, Any]) -> str:
        lines, tables = [], []
        for media_type, kind in sorted(content.items(), key=lambda item: item[0] != _JSON):
            schema = kind["schema"]
            name = http_types.named(schema)
            here = name is not None and name not in self._shared
            what = [] if here else [http_types.type_of(schema)]
            lines += [", ".join(what + ([] if media_type == _JSON else [code(media_type)]))]
            if here and name is not None:
                tables.append(self._fields(name))
            tables += [_example(example["value"]) for example in list(kind.get("examples", {}).values())[:1]]
        kinds = " or ".join(line for line in lines if line)
        first = f"{title}: {kinds}" if kinds else title
        about = "" if description in _UNSAID else _ended(sentences(description))
        said = f"{first}. {about}".rstrip() if about or first != title else title
        return "\n\n".join(part for part in (said, *tables) if part)

    def _fields(self, name: str) -> str:
        return http_types.fields(self._schemas[name], is_asked=name in self._asked)

    def _reachable(self, schemas: Iterable[http_types.Schema]) -> set[str]:
        """The names of bodies that are in others, however deep."""
        found: set[str] = set()
        waiting = [name for schema in schemas for name in http_types.used_by(schema)]
        while waiting:
            if (name := waiting.pop()) not in found:
                found.add(name)
                waiting += http_types.used_by(self._schemas[name])
        return found

    def _errors(self, responses: dict[str, Any]) -> str:
        words = []
        for status, answer in sorted(responses.items()):
            if status >= "400":
                own = answer["description"]
                words.append(link(status, "#errors") + ("" if own == self._usual[status] else f" ({own.rstrip('.')})"))
        return f"Errors: {', '.join(words)}." if words else ""


def requests_of(paths: dict[str, Any]) -> list[Request]:
    """Every request of a document. Most paths of the registry do the same without ``/schemas`` before them."""
    found: dict[tuple[str, str], Request] = {}
    for path, methods in paths.items():
        short = path.removeprefix(_ALIAS)
        for method in _METHODS:
            if method not in methods:
                continue
            is_alias = short != path and _unnamed(methods[method]) == _unnamed(paths.get(short, {}).get(method, {}))
            told = short if is_alias else path
            request = found.setdefault((told, method), Request(method, told, methods[method]))
            if is_alias:
                request.aliases.append(path)
    return list(found.values())


def _unnamed(operation: dict[str, Any]) -> dict[str, Any]:
    """What an operation is, whatever path it is under."""
    return {name: said for name, said in operation.items() if name != "operationId"}


def _usual_errors(requests: list[Request]) -> dict[str, str]:
    """What each status means most often."""
    counts: dict[str, Counter[str]] = {}
    for request in requests:
        for status, answer in request.said["responses"].items():
            if status >= "400":
                counts.setdefault(status, Counter())[answer["description"]] += 1
    return {status: min(said, key=lambda text: (-said[text], text)) for status, said in counts.items()}


def _parameters(parameters: list[dict[str, Any]]) -> str:
    rows = []
    for one in sorted(parameters, key=lambda parameter: parameter["in"] != "path"):
        where = one["in"] if one["in"] != "query" or not one["required"] else "query, required"
        schema = one["schema"]
        rows.append(
            (
                code(one["name"]),
                where,
                http_types.type_of(schema),
                http_types.meaning(schema, one.get("description", "")),
            )
        )
    return table(("Parameter", "In", "Type", "Meaning"), rows)


def _example(value: Any) -> str:
    if isinstance(value, str):
        return block("text", value)
    return block("json", json.dumps(value, indent=2, ensure_ascii=False))


def _ended(sentence: str) -> str:
    return sentence if not sentence or sentence.endswith((".", "?", "!")) else f"{sentence}."

"""How paths of the schema registry differ from the others.

Subjects may have any characters, such as the ``/`` in the name of a file that another one imports. A path under
``/contexts/{context}`` is the same path with the context in front of the subject. Clients choose among several names
for JSON, and look for fields of their own in errors.
"""

from __future__ import annotations

from urllib.parse import quote

from goqueue.api.http.bodies.answer import Answer
from goqueue.api.http.bodies.errors import error_answer
from goqueue.api.http.bodies.registry_media import OFFERED, accepted, named
from goqueue.api.http.routing.convention import Convention
from goqueue.api.http.routing.paths import decoded_parts, has_encoded_slash, routed
from goqueue.api.http.server.request import Request
from goqueue.model.errors import GoQueueError, NotAcceptable

_ROOTS = {"subjects", "compatibility", "config", "mode", "contexts", "schemas", "metadata"}
"""How the paths of the registry begin."""


class RegistryConvention(Convention):
    def media_type(self, request: Request) -> str:
        best = accepted(request.raw_headers)
        if best is None:
            raise NotAcceptable(f"HTTP 406 Not Acceptable: the answer is {', '.join(OFFERED)}; accept one of these")
        return best

    def parts(self, request: Request) -> list[str]:
        raw_path = request.raw_path
        if has_encoded_slash(raw_path) or b"/contexts/" in raw_path:
            parts = decoded_parts(raw_path)
            if "contexts" in parts:
                _leave_context(request, parts)
        else:
            parts = request.path.split("/")
        return routed(parts)

    def error(self, request: Request, error: GoQueueError) -> Answer:
        return error_answer(error, named(request.raw_headers), to_registry=True)


def _leave_context(request: Request, parts: list[str]) -> None:
    """Put the context before the subject; where none is named, the context stands for it, or for a prefix of all."""
    at = parts.index("contexts")
    if len(parts) < at + 3 or parts[at + 2] not in _ROOTS:
        return
    context, rest = parts[at + 1], parts[at + 2 :]
    prefix = "" if context in ("", ".") else f":{context if context.startswith('.') else f'.{context}'}:"
    place = 2 if rest[0] == "compatibility" else 1
    if rest[0] == "schemas":
        pass
    elif len(rest) > place:
        if not rest[place].startswith(":."):
            rest[place] = prefix + rest[place]
    elif rest[0] == "subjects":
        request.query += b"&subjectPrefix=" + quote(prefix).encode()
    elif prefix:
        rest.append(prefix)
    parts[at:] = rest

"""Query parameters are as strict as bodies: a typing error is noticed by the one who made it."""

from __future__ import annotations

from typing import Any

from litestar import Request
from litestar.params import ParameterKwarg
from litestar.typing import FieldDefinition

from goqueue.model.errors import InvalidRequest
from goqueue.model.fields import did_you_mean, shown

LENIENT = "lenient"
"""On a route whose clients are not ours: what they send beyond what is known means nothing here."""
_NOT_IN_THE_QUERY = {"request", "data"}


async def refuse_unknown_parameters(request: Request[Any, Any, Any]) -> None:
    """Runs before every route."""
    if not request.scope["query_string"] or request.route_handler.opt.get(LENIENT):
        return
    declared = request.route_handler.parsed_fn_signature.parameters
    names = declared.keys() - request.path_params.keys() - _NOT_IN_THE_QUERY
    known = sorted(_name_in_query(declared[name]) for name in names)
    for name in request.query_params:
        if name not in known:
            allowed = f"there are {', '.join(known)}" if known else "this path takes none"
            raise InvalidRequest(f"no such parameter: {shown(name)}; {allowed}{did_you_mean(name, known)}")


def _name_in_query(field: FieldDefinition) -> str:
    """The framework keeps some names for itself; a parameter that has one is called otherwise in the code."""
    given = field.kwarg_definition
    return (given.name if isinstance(given, ParameterKwarg) else None) or field.name

"""Requests say what the server knows and nothing else: keys of bodies, and of queries, are known and stand once."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, model_validator

from veil.errors import InputError
from veil.files.tables import object_of
from veil.wire.names import require_known


class Strict(BaseModel):
    """A body whose keys are all known, and whose values have the types that they should have."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _require_known(cls, given: Any) -> Any:
        """Name the nearest field in place of one that there is not."""
        if isinstance(given, dict):
            require_known("field", given, cls.model_fields)
        return given


def no_constant(name: str) -> float:
    """For `json.loads`: raise ValueError for NaN and infinity, which JSON does not have."""
    raise ValueError(f"{name} is no number of JSON")


class _StrictRequest(Request):
    """A request whose JSON has each key once."""

    async def json(self) -> Any:
        """The JSON of the body. Raises JSONDecodeError for what is none, with the reason."""
        if not hasattr(self, "_json"):
            body = await self.body()
            try:
                self._json = json.loads(body, object_pairs_hook=object_of, parse_constant=no_constant)
            except json.JSONDecodeError:
                raise
            except (ValueError, RecursionError) as error:
                raise json.JSONDecodeError(str(error)[:200], "", 0) from None
        return self._json


def is_strict(path: str) -> bool:
    """Whether a route refuses parameters of the query which it does not have: others are of another protocol, or for people."""
    return path.startswith("/v1/")


class StrictRoute(APIRoute):
    """A route that refuses parameters of the query which it does not have, or that stand twice."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler of the route."""
        answer, known = super().get_route_handler(), {param.alias for param in self.dependant.query_params}

        async def strict(request: Request) -> Response:
            names = [name for name, _ in request.query_params.multi_items()]
            if is_strict(self.path):
                require_known("query parameter", names, known)
                if len(set(names)) < len(names):
                    raise InputError("a query parameter stands twice; give each once")
            return await answer(_StrictRequest(request.scope, request.receive))

        return strict

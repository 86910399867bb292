"""Answers against the contract: what a server of the tests says has to be what its OpenAPI document promises."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

PROBLEM = "application/problem+json"


class Promises:
    """The promises of one document, which `require` compares answers with."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self._paths = [(re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))), path) for path in document["paths"]]
        self._validator = cache(self._made)

    def resolved(self, value: dict[str, Any]) -> dict[str, Any]:
        """The value that a reference leads to."""
        while "$ref" in value:
            part: Any = self.document
            for key in value["$ref"].removeprefix("#/").split("/"):
                part = part[key]
            value = part
        return value

    def require(self, method: str, url: str, status: int, headers: dict[str, str], data: bytes) -> None:
        """Raise unless the document names the status and the type of an answer, and its schema is true of the body."""
        path = next((template for regex, template in self._paths if regex.fullmatch(url.partition("?")[0])), "")
        operation = self.document["paths"].get(path, {}).get("get" if method == "HEAD" else method.lower())
        kind = headers.get("content-type", "")
        if operation is None or not data:
            assert operation is None or method == "HEAD" or "content" not in self._answer(operation, status), (url, status)
            return
        content = self._answer(operation, status).get("content", {})
        assert kind in content, f"{method} {path}: {kind} is not promised for {status}, but {', '.join(content) or 'nothing'}"
        if kind in ("application/json", PROBLEM):
            self._validator(json.dumps(content[kind]["schema"])).validate(json.loads(data))

    def _answer(self, operation: dict[str, Any], status: int) -> dict[str, Any]:
        assert str(status) in operation["responses"], f"{operation['operationId']}: {status} is not promised"
        return self.resolved(operation["responses"][str(status)])

    def _made(self, schema: str) -> Draft202012Validator:
        return Draft202012Validator({**json.loads(schema), "components": self.document["components"]})

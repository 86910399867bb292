"""Messages of verification by a third party as bytes: JSON, numbers in base64. Version 1 must not change."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float64

from veil.errors import WireError
from veil_faces.files.face_facts import scheme_of, scheme_text
from veil_faces.template import TemplateScheme
from veil_faces.third_party import ComparisonAnswer, ComparisonRequest, SentProbe, SentTemplate

FORMAT = "veil third party 1"
_REQUEST = {"format", "kind", "holder", "client"}
_FORM = _REQUEST | {"scheme", "origin", "basis"}
_DAMAGE = (LookupError, TypeError, ValueError, OverflowError, RecursionError)


def third_party_bytes(message: SentTemplate | SentProbe | ComparisonAnswer) -> bytes:
    """The bytes of a message to the third party, or of its answer (faces/reference/json.md#messages-of-a-third-party)."""
    request = {"format": FORMAT, "holder": message.request.holder.hex(), "client": message.request.client.hex()}
    if isinstance(message, ComparisonAnswer):
        return json.dumps({**request, "kind": "answer", "accepted": message.accepted}).encode()
    form = {"scheme": json.loads(scheme_text(message.scheme)), "origin": _text(message.origin), "basis": _text(message.basis)}
    if isinstance(message, SentProbe):
        return json.dumps({**request, "kind": "probe", **form}).encode()
    return json.dumps({**request, "kind": "template", **form, "threshold": float(message.threshold)}).encode()


def sent_template_of(data: bytes) -> SentTemplate:
    """The holder's message in `data`. Raises WireError for other bytes, InputError for numbers that no template has."""
    record = _record(data, "template", _FORM | {"threshold"})
    scheme, origin, basis = _form(record)
    threshold = record["threshold"]
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not abs(threshold) < 2**53:
        raise WireError(f"the threshold of a message must be a number, got {threshold!r}")
    return SentTemplate(request=_request(record), scheme=scheme, origin=origin, basis=basis, threshold=float(threshold))


def sent_probe_of(data: bytes) -> SentProbe:
    """The client's message in `data`. Raises WireError for other bytes, InputError for numbers that no probe has."""
    record = _record(data, "probe", _FORM)
    scheme, origin, basis = _form(record)
    return SentProbe(request=_request(record), scheme=scheme, origin=origin, basis=basis)


def answer_of(data: bytes) -> ComparisonAnswer:
    """The third party's answer in `data`. Raises WireError for other bytes."""
    record = _record(data, "answer", _REQUEST | {"accepted"})
    if not isinstance(record["accepted"], bool):
        raise WireError(f"an answer is true or false, got {record['accepted']!r}")
    return ComparisonAnswer(request=_request(record), accepted=record["accepted"])


def _record(data: bytes, kind: str, keys: set[str]) -> Mapping[str, Any]:
    """The JSON object in `data`. Raises WireError unless it is a message of this version and kind, with these keys alone."""
    try:
        record = json.loads(data)
    except _DAMAGE as error:
        raise WireError(f"a message is truncated or damaged ({error}); have it sent again") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise WireError(f"this is no message of the format {FORMAT!r}, which this veil reads alone")
    if record.get("kind") != kind or record.keys() != keys:
        raise WireError(
            f"a message of the kind {kind!r} with {', '.join(sorted(keys))} is due, got {', '.join(sorted(record))}"
        )
    return record


def _request(record: Mapping[str, Any]) -> ComparisonRequest:
    try:
        return ComparisonRequest(holder=bytes.fromhex(record["holder"]), client=bytes.fromhex(record["client"]))
    except _DAMAGE as error:
        raise WireError(f"a message names no request ({error})") from None


def _form(
    record: Mapping[str, Any],
) -> tuple[TemplateScheme, Float64[np.ndarray, "_"], Float64[np.ndarray, "_ _"]]:
    """Scheme, origin and basis of a message; whether they fit each other is checked by its class."""
    try:
        scheme = scheme_of(json.dumps(record["scheme"]))
        return scheme, _numbers(record["origin"]), _numbers(record["basis"]).reshape(-1, scheme.space.dim)
    except _DAMAGE as error:
        raise WireError(f"a message holds no template or probe ({error})") from None


def _text(numbers: Float64[np.ndarray, "..."]) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers, dtype="<f8").tobytes()).decode()


def _numbers(text: str) -> Float64[np.ndarray, "_"]:
    return np.frombuffer(base64.b64decode(text, validate=True), dtype="<f8").astype(np.float64)

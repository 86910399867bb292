"""Messages of a third party as bytes: the same after the way, golden, and no other bytes are read."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import numpy as np
import pytest

from face_worlds.face_templates import SCHEME, template
from veil.errors import InputError, WireError
from veil.randomness import Secure
from veil_faces.files.third_party_messages import answer_of, sent_probe_of, sent_template_of, third_party_bytes
from veil_faces.third_party import ComparisonAnswer, ComparisonRequest, SentProbe, sent_template

REQUEST = ComparisonRequest(holder=bytes(16), client=b"c" * 16)
TEMPLATE = sent_template(template("ada"), request=REQUEST, scheme=SCHEME, threshold=0.5, key=Secure(b"k" * 32))
PROBE = SentProbe(request=REQUEST, scheme=SCHEME, origin=np.arange(16.0), basis=np.empty((0, 16)))
ANSWER = ComparisonAnswer(request=REQUEST, accepted=True)


def test_messages_arrive_as_they_were_sent() -> None:
    template_sent, probe = sent_template_of(third_party_bytes(TEMPLATE)), sent_probe_of(third_party_bytes(PROBE))
    for sent, arrived in ((TEMPLATE, template_sent), (PROBE, probe)):
        assert (arrived.request, arrived.scheme) == (sent.request, sent.scheme)
        np.testing.assert_array_equal(arrived.origin, sent.origin)
        np.testing.assert_array_equal(arrived.basis, sent.basis)
    assert template_sent.threshold == 0.5 and answer_of(third_party_bytes(ANSWER)) == ANSWER


def test_the_bytes_are_those_of_the_definition() -> None:
    """Golden: both parties and the third may run different versions of veil."""
    request = {"format": "veil third party 1", "holder": "00" * 16, "client": "63" * 16}
    assert json.loads(third_party_bytes(ANSWER)) == {**request, "kind": "answer", "accepted": True}
    record = json.loads(third_party_bytes(PROBE))
    assert record.pop("scheme")["space"]["dim"] == 16
    origin = base64.b64encode(np.arange(16, dtype="<f8").tobytes()).decode()
    assert record == {**request, "kind": "probe", "origin": origin, "basis": ""}


@pytest.mark.parametrize(("read", "message"), [(sent_template_of, TEMPLATE), (sent_probe_of, PROBE), (answer_of, ANSWER)])
def test_no_other_bytes_are_read(read: object, message: object) -> None:
    """Broken twins of a true message: every key left out, one more, each value of another type, cut bytes, another kind."""
    assert callable(read)
    data = third_party_bytes(message)  # type: ignore[arg-type]
    record = json.loads(data)
    broken: list[object] = [{key: value for key, value in record.items() if key != lost} for lost in record]
    values: list[object] = [None, [], {"a": 1}, "!", -3, 10**400]
    broken += [{**record, key: value} for key in record for value in values]
    broken += [{**record, "person": "ada"}, [record], "text", {**record, "format": "veil third party 2"}]
    for wrong in [*(json.dumps(each).encode() for each in broken), data[:-1], b"", b"\xff", b"[" * 100_000]:
        with pytest.raises((WireError, InputError)):
            read(wrong)
    for other in (TEMPLATE, PROBE, ANSWER):
        if other is not message:
            with pytest.raises(WireError, match="is due"):
                read(third_party_bytes(other))


def test_numbers_are_checked_as_they_arrive() -> None:
    """A basis of another scheme, and one that is none, are refused with the class's own words."""
    record = json.loads(third_party_bytes(TEMPLATE))
    for basis, words in ((record["basis"][:-1], "no template or probe"), (record["origin"], r"\(1, 16\)")):
        with pytest.raises((WireError, InputError), match=words):
            sent_template_of(json.dumps({**record, "basis": basis}).encode())
    far = {**record, "origin": base64.b64encode(np.full(16, np.nan).tobytes()).decode()}
    with pytest.raises(InputError, match="farther from zero"):
        sent_template_of(json.dumps(far).encode())
    with pytest.raises(InputError, match="not orthonormal"):
        replace(TEMPLATE, basis=2 * TEMPLATE.basis)

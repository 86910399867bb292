"""Policies of maps: other data is named and refused by its first bytes, messages by their header and content."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from veil.errors import InputError, RangeError
from veil.features import Features
from veil.forms import Subsets, Subspaces
from veil.mechanisms.profile import Profile
from veil.server.maps.policy import MapPolicy, NotAMessage, Refused, require_message
from veil.wire.codec import encode, message_length
from veil.wire.head import HEAD_BYTES, read_head
from veil.wire.message import Message
from worlds.releases import released, taken


@pytest.fixture(scope="module")
def messages(door: dict[str, Features]) -> dict[str, Message]:
    few = taken(next(iter(door.values())), np.arange(20))
    return {
        "hardened": released(few, Profile.hardened(quantized=True))[0],
        "paper": released(few, Profile.paper(4))[0],
        "lines": released(few, Profile.hardened(quantized=True), lines=True)[0],
        "words": released(few, None)[0],
    }


@pytest.mark.parametrize(
    ("begins", "told"),
    [
        (b"\xff\xd8\xff\xe0", "JPEG"),
        (b"\x89PNG\r\n", "PNG"),
        (b"\x89HDF\r\n", "HDF5"),
        (b"PK\x03\x04", "archive"),
        (b"\x93NUMPY", "NumPy"),
        (b"SQLite format 3\0", "database"),
        (b"\0\0\0\x18ftypheic", "image or a film"),
        (b"", "no veil message"),
        (b"VEIL", "no veil message"),
        (b"veil" + bytes(200), "no veil message"),
    ],
)
def test_other_data_is_refused_by_its_type(begins: bytes, told: str) -> None:
    with pytest.raises(NotAMessage, match=told):
        require_message(begins + bytes(0 if begins in (b"", b"VEIL") else 200))


def test_lengths_are_known_from_the_header(messages: dict[str, Message]) -> None:
    """Second method: the length of the message itself."""
    for message in messages.values():
        data = encode(message)
        assert message_length(MapPolicy().require_head(data[:HEAD_BYTES])) == len(data)
        assert message_length(read_head(data)) == len(data)


@pytest.mark.parametrize(
    ("policy", "accepted"),
    [
        (MapPolicy(), {"hardened", "lines", "words"}),
        (MapPolicy(least_profile="any"), {"hardened", "paper", "lines", "words"}),
        (MapPolicy(forms=("words",)), {"words"}),
        (MapPolicy(forms=("subspaces",)), {"hardened", "lines"}),
        (MapPolicy(lines_only=True), {"lines"}),
        (MapPolicy(max_epsilon=11.9), {"hardened", "lines"}),
        (MapPolicy(max_epsilon=12.0), {"hardened", "lines", "words"}),
        (MapPolicy(max_features=19), set()),
        (MapPolicy(max_bytes=1000), {"words"}),
    ],
)
def test_messages_are_accepted_by_form_profile_and_size(
    messages: dict[str, Message], policy: MapPolicy, accepted: set[str]
) -> None:
    """Enumeration: each policy with each form. The policy is the same after JSON."""
    assert MapPolicy.of(policy.as_json()) == policy
    for name, message in messages.items():
        if name in accepted:
            policy.require_head(encode(message))
            policy.require_content(message)
            continue
        with pytest.raises(Refused):
            policy.require_head(encode(message))
            policy.require_content(message)


def test_words_without_privacy_are_refused(messages: dict[str, Message]) -> None:
    form = messages["words"].form
    assert isinstance(form, Subsets)
    raw = replace(form, mechanism=replace(form.mechanism, epsilon=float("inf")))
    with pytest.raises(Refused, match="inf"):
        MapPolicy().require_content(replace(messages["words"], form=raw))


def test_impossible_policies_are_refused() -> None:
    impossible: list[dict[str, Any]] = [
        {"forms": []},
        {"forms": ["raw"]},
        {"max_features": 0},
        {"max_epsilon": float("nan")},
        {"keep_days": -1.0},
    ]
    for values in impossible:
        with pytest.raises(RangeError):
            MapPolicy.of(values)
    wrongs: list[dict[str, Any]] = [{"unknown": 1}, {"forms": 3}, {"max_features": "many"}, {"max_epsilon": "1"}]
    for wrong in wrongs:
        with pytest.raises(InputError):
            MapPolicy.of(wrong)


def test_a_lie_about_the_profile_is_believed(messages: dict[str, Message]) -> None:
    """Limit of the server: it cannot check how numbers were drawn. A broken lifting passes under another name.

    Whoever lies so harms himself: docs/theory/hardened.md says what is recovered from it.
    """
    paper_lifted = messages["paper"]
    assert isinstance(paper_lifted.form, Subspaces)
    lie = replace(paper_lifted, form=replace(paper_lifted.form, profile="hardened"))
    with pytest.raises(Refused, match="paper"):
        MapPolicy().require_content(paper_lifted)
    MapPolicy().require_content(lie)

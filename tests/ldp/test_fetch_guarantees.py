"""Guarantees of fetches: what they refuse, and the sentence that each prints."""

from __future__ import annotations

import math

import pytest

from veil.errors import RangeError
from veil.ldp.guarantee import ComputationalPrivacy, PerfectPrivacy


@pytest.mark.parametrize(("honest", "servers"), [(3, 2), (-1, 2), (0, 0), (1, 0)])
def test_servers_that_cannot_be_are_refused(honest: int, servers: int) -> None:
    with pytest.raises(RangeError, match="cannot be honest"):
        PerfectPrivacy(non_colluding=honest, of=servers, unit="session")


@pytest.mark.parametrize("bits", [0.0, -1.0, math.nan, math.inf])
def test_bits_that_promise_nothing_are_refused(bits: float) -> None:
    with pytest.raises(RangeError, match="bits must be positive and finite"):
        ComputationalPrivacy(assumption="factoring is hard", bits=bits, unit="query")


def test_what_is_assumed_and_what_is_learned_must_be_said() -> None:
    with pytest.raises(RangeError, match="assumption"):
        ComputationalPrivacy(assumption=" ", bits=128.0, unit="query")
    with pytest.raises(RangeError, match="what each server learns"):
        PerfectPrivacy(non_colluding=1, of=2, unit="session", learns=())
    with pytest.raises(RangeError, match="what each server learns"):
        ComputationalPrivacy(assumption="factoring is hard", bits=128.0, unit="query", learns=("when", " "))


def test_sentences() -> None:
    """Oracle: the sentences, written out."""
    assert PerfectPrivacy(non_colluding=1, of=2, unit="session").sentence == (
        "While at least 1 of 2 servers keeps to itself what it receives, no server learns which records a session fetched, "
        "however much it computes; each server learns how many records were asked for, when and from which network address."
    )
    assert PerfectPrivacy(non_colluding=0, of=1, unit="session", learns=("when",)).sentence == (
        "No server learns which records a session fetched, however much it computes; each server learns when."
    )
    assert ComputationalPrivacy(
        assumption="factoring is hard", bits=128.0, unit="query", learns=("how many", "when")
    ).sentence == (
        "To learn which record a query fetched, the server needs an estimated 2^128 operations (factoring is hard); "
        "each server learns how many and when."
    )

"""Which queries a map can answer, told in what a client can do: send another form, or words of another dictionary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from veil.errors import InputError
from veil.forms import Subsets
from veil.places.held_map import Map
from veil.server.maps.facts import dictionaries_of
from veil.server.maps.policy import FORMS, MapPolicy, Refused
from veil.wire.head import Head
from veil.wire.message import Message


def answered_forms(policy: MapPolicy, facts: Mapping[str, Any]) -> list[str]:
    """The forms of queries that a map answers: those of its policy that its images, as `facts` tell them, compare with.

    A map of words answers words, a private map of subspaces these, and a public one both, words where it has a dictionary for
    them. Of a map without images, or of an earlier version of veil, nothing is known: then those of the policy.
    """
    if "words" not in facts:
        return list(policy.forms)
    can = {"words": bool(facts["words"]), "subspaces": bool(facts.get("public")) or not facts["words"]}
    return [form for form in FORMS if form in policy.forms and can[form]]


def require_form(head: Head, policy: MapPolicy, facts: Mapping[str, Any]) -> None:
    """Raise Refused for a query of a form that a map does not answer."""
    forms, form = answered_forms(policy, facts), "words" if head.has_words else "subspaces"
    if form in forms:
        return
    if not forms:
        raise Refused("this map answers no query: what its policy accepts does not compare with its images; ask its owner")
    raise _not_compared(form, forms[0])


def require_comparable(query: Message, where: Map) -> None:
    """Raise Refused for a query of a form that a map answers, but which it cannot, with what the client could send."""
    form = query.form
    if isinstance(form, Subsets):
        if form.mechanism.epsilon == 0:
            raise Refused("the query's words are random (epsilon 0), and positions alone are not answered; raise the epsilon")
        known = dictionaries_of(where.form, where.folder)
        if not known:
            raise _not_compared("words", "subspaces")
        if form.dictionary not in known:
            told = ", ".join(digest[:12] for digest in known)
            raise Refused(f"the query's words are of dictionary {form.dictionary[:12]}; send words of {told} (GET /v1/maps)")
        return
    if isinstance(where.form, Subsets):
        raise _not_compared("subspaces", "words")
    try:
        where.codebook_for(form)
    except InputError:
        raise Refused(
            f"the query was privatized with codebook {form.space.codebook[:12] or '(none)'}; this map takes the bundled one: "
            "privatize with that"
        ) from None


def _not_compared(form: str, other: str) -> Refused:
    return Refused(f"the query holds {form}, which do not compare with the images of this map; send {other}")

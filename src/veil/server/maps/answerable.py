"""Facts of a map for its users, and which queries it can answer: of which form, and words of which dictionary."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from veil.errors import InputError
from veil.files.codebooks import bundled_codebook
from veil.files.maps.indexes import indexed_dictionaries
from veil.forms import Form, Points, Subsets
from veil.places.held_map import Map
from veil.scene import Scene
from veil.server.maps.policy import FORMS, MapPolicy, Refused
from veil.wire.head import Head
from veil.wire.message import Message


def facts_of(scenes: Sequence[Scene], folder: Path) -> dict[str, Any]:
    """Facts of a map's models, the first of which answers queries, as JSON values; `folder` holds the map."""
    dictionaries = dictionaries_of(next(iter(scenes[0].images.values())).form, folder)
    error = scenes[0].mean_reprojection_error_px
    return {
        "models": [{"images": len(scene.images), "points": len(scene.points)} for scene in scenes],
        "public": scenes[0].is_public,
        "words": bool(dictionaries),
        "gravity": scenes[0].down is not None,
        "dictionaries": dictionaries,
        "mean_reprojection_error_px": error if math.isfinite(error) else None,
    }


def dictionaries_of(form: Form, folder: Path | None) -> list[str]:
    """The dictionaries (SHA-256, hex) whose words a map takes in queries; `form` is that of its images.

    Of a map of words its own, of a public map the bundled one and those that `veil index` indexed it for in its folder, of a
    map of subspaces none.
    """
    if isinstance(form, Subsets):
        return [form.dictionary]
    if not isinstance(form, Points):
        return []
    book = bundled_codebook(form.space.descriptor)
    bundled = [book.digest] if book.raw_space == form.space else []
    return list(dict.fromkeys([*bundled, *([] if folder is None else indexed_dictionaries(folder))]))


def answered_forms(policy: MapPolicy, facts: Mapping[str, Any]) -> list[str]:
    """The forms of queries that a map answers: those of its policy that its images, as `facts` tell them, compare with.

    A map of words answers words, a private map of subspaces these, and a public one both, words where it has a dictionary for
    them. Of a map without images nothing is known: then those of the policy.
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
            dictionaries = ", ".join(digest[:12] for digest in known)
            raise Refused(
                f"the query's words are of dictionary {form.dictionary[:12]}; send words of {dictionaries} (GET /v1/maps)"
            )
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

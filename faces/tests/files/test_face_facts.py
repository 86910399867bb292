"""Facts of a face store, character by character as files hold them: tags and seals cover this very text."""

from __future__ import annotations

import json

import pytest

from veil.space import Space
from veil_faces.files.face_facts import Contents, Threshold, scheme_of, scheme_text
from veil_faces.identification import GallerySize, OpenSet
from veil_faces.template import TemplateScheme

PLAIN = TemplateScheme(
    strategy="hybrid",
    m=4,
    comparison="p2s",
    space=Space(descriptor="dlib", normalization="L2", dim=128),
    decoys="ab" * 32,
    keyed=False,
)
BALANCED = TemplateScheme(
    strategy="hybrid",
    m=2,
    comparison="s2s",
    space=Space(descriptor="x", normalization="L2", dim=64, codebook="cd" * 32, dither_steps=1.5),
    decoys="ab" * 32,
    centered=True,
    balance="sex",
    quota=(("f", 2), ("m", 3)),
)


def test_setups_are_stored_as_ever() -> None:
    space = '{"descriptor": "dlib", "normalization": "L2", "dim": 128, "codebook": "", "dither_steps": 0.0}'
    assert scheme_text(PLAIN) == (
        f'{{"strategy": "hybrid", "m": 4, "by": "p2s", "space": {space}, "decoys": "{"ab" * 32}", "keyed": false, '
        '"centered": false, "balance": "", "quota": []}'
    )
    assert scheme_text(BALANCED).endswith('"keyed": true, "centered": true, "balance": "sex", "quota": [["f", 2], ["m", 3]]}')
    for scheme in (PLAIN, BALANCED):
        assert scheme_of(scheme_text(scheme)) == scheme


def test_setups_hold_every_choice_and_no_other() -> None:
    """Broken twins of a true setup: each key left out, and one too many."""
    record = json.loads(scheme_text(PLAIN))
    for broken in ({**record, "more": 1}, {**record, "space": {**record["space"], "more": 1}}):
        with pytest.raises(ValueError, match="no more"):
            scheme_of(json.dumps(broken))
    for lost in record:
        with pytest.raises(LookupError):
            scheme_of(json.dumps({key: value for key, value in record.items() if key != lost}))


def test_thresholds_are_stored_as_ever() -> None:
    threshold = Threshold(distance=0.5, false_accepts=0.0, false_rejects=0.25, pairs=8)
    size = GallerySize(templates=3, threshold=0.4, fpir=0.01, fpir_low=0.0, fpir_high=0.02, fpir_bound=0.03)
    contents = Contents(facts={})
    contents.set_thresholds(threshold, OpenSet(asked=0.05, people=200, mated=9, sizes=(size,)))
    assert contents.facts == {
        "threshold": '{"distance": 0.5, "false_accepts": 0.0, "false_rejects": 0.25, "pairs": 8}',
        "open_set": '{"fpir": 0.05, "confidence": 0.95, "people": 200, "mated": 9, "sizes": [{"templates": 3, '
        '"threshold": 0.4, "fpir": 0.01, "fpir_low": 0.0, "fpir_high": 0.02, "fpir_bound": 0.03, "fnir": null, '
        '"fnir_low": null, "fnir_high": null}]}',
    }
    assert contents.threshold == threshold and contents.open_set is not None and contents.open_set.sizes == (size,)

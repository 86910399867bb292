"""The matching protocol on sequences whose answer is known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veil.device.descriptor_books import DescriptorBooks, books_of
from veil.mechanisms.profile import STRATEGIES, Profile
from veil.randomness import seeded
from veil.space import Space
from veil_lab.cli.evaluate.homographies import _write_ratios as write_ratios
from veil_lab.studies.matching.homographies import (
    ImageSequence,
    MatchingCase,
    default_cases,
    evaluate,
    form_cases,
    real_decoys,
    transfer_errors,
)
from worlds import codebook, features, generator, unit
from worlds.schemas import validate

SIGNED = Space(descriptor="xfeat", normalization="L2", dim=64)
BOOK = codebook(generator("book"), 512, 4)
POOL = codebook(generator("pool"), 512, 4, kind="descriptors")
H = np.array([[1.02, 0.05, 3.0], [-0.04, 0.98, -2.0], [1e-5, -2e-5, 1.0]])


def sequence(offset_px: float) -> ImageSequence:
    """A sequence of two images with the same descriptors, at positions that H maps `offset_px` beside the truth."""
    first = features(generator("first"), 150)
    plain = first.keypoints.astype(np.float64) - 0.5
    mapped = np.hstack([plain, np.ones((150, 1))]) @ H.T
    moved = mapped[:, :2] / mapped[:, 2:] + 0.5 + [offset_px, 0]
    second = replace(first, keypoints=moved.astype(np.float32), image_digest=bytes(range(32)))
    return ImageSequence(name="planted", features=(first, second), homographies=(H,))


def test_a_planted_offset_is_read_back() -> None:
    """Planted truth: every match is 2.5 px off, so accuracy is 0 up to 2 px and 1 from 3 px."""
    cases = [
        MatchingCase(sent=None, distance="point"),
        MatchingCase(sent=Profile.paper(2), distance="p2s"),
        MatchingCase(sent=Profile.hardened(quantized=True), distance="p2s"),
        MatchingCase(sent=real_decoys(4), distance="s2s"),
    ]
    rows = evaluate([sequence(2.5)], cases, codebook=BOOK, decoys=POOL, randomness=seeded("test"))
    for row in rows:
        record = row.as_json()
        assert record["mma"]["2"] == 0
        assert record["mma"]["3"] == pytest.approx(1, abs=0.02 if record["distance"] != "s2s" else 0.3)
        assert record["pairs"] == 1
        assert set(record) >= {"lifting", "profile", "m", "distance", "pairs", "matches", "mma"}
    assert rows[0].as_json()["lifting"] == "none"
    validate("evaluate-homographies", {"rows": [row.as_json() for row in rows], "left_out": []})


def signed_books() -> DescriptorBooks:
    """Books of random signed descriptors of 64 dimensions, of which 24 vary much."""
    random = generator("signed books")
    sample = unit(random.normal(size=(3000, 64)) * np.where(np.arange(64) < 24, 1.0, 0.1)).astype(np.float32)
    return books_of(sample, SIGNED, 256, name="planted", image_digests=["00" * 8])


def signed(seen: ImageSequence, *, noise: float = 0.02) -> ImageSequence:
    """The sequence with signed descriptors of 64 dimensions, those of the second image a little off those of the first."""
    random = generator("signed")
    spread = np.where(np.arange(64) < 24, 1.0, 0.1)
    first = unit(random.normal(size=(150, 64)) * spread).astype(np.float32)
    second = unit(first + noise * random.normal(size=first.shape) * spread).astype(np.float32)
    described = [
        replace(item, descriptors=vectors, space=SIGNED) for item, vectors in zip(seen.features, (first, second), strict=True)
    ]
    return replace(seen, features=tuple(described))


def compared(seen: ImageSequence, epsilon: float = 8.0) -> dict[str, dict]:
    """Records of the compared forms, by what was matched; all are as the schema promises."""
    books = signed_books()
    cases = form_cases(quantized=False, codebook=books.codebook, epsilon=epsilon, m=2)
    rows = evaluate([seen], cases, codebook=books.codebook, decoys=books.decoys, randomness=seeded("test"))
    records = [row.as_json() for row in rows]
    validate("evaluate-homographies", {"rows": records, "left_out": []})
    return {record["distance"]: record for record in records}


def test_signed_descriptors_are_compared_in_every_form() -> None:
    """Planted: all 150 features agree, raw and in subspaces; words find fewer, and those of two noisy images fewest."""
    rows = compared(signed(sequence(0.0)))
    assert list(rows) == ["point", "p2s", "s2s", "p2w", "w2w"]
    assert rows["point"]["right_matches"] == 150 and rows["point"]["mma"]["1"] == 1
    assert rows["p2s"]["right_matches"] >= 145
    assert rows["point"]["right_matches"] > rows["p2w"]["right_matches"] > rows["w2w"]["right_matches"] > 10
    assert rows["p2w"]["mma"]["3"] > 0.5
    assert {record["descriptor"] for record in rows.values()} == {"xfeat"}
    assert {record["features"] for record in rows.values()} == {150}
    assert [rows["w2w"][key] for key in ("profile", "words", "epsilon", "m")] == ["words", 256, 8.0, 2]
    assert rows["p2s"]["words"] is None and rows["p2s"]["lifting"] == "sub-adversarial"


def test_a_descriptor_that_cannot_match_scores_nothing() -> None:
    """Planted: each feature of the second image has the descriptor of one that lies elsewhere, so every match is wrong."""
    good = signed(sequence(0.0))
    order = np.roll(np.arange(150), 1)
    wrong = replace(good.features[1], descriptors=good.features[1].descriptors[order])
    rows = compared(replace(good, features=(good.features[0], wrong)))
    for record in rows.values():
        assert record["right_matches"] <= 1, record["distance"]
    assert rows["point"]["right_matches"] == 0 and rows["point"]["mma"]["1"] == 0
    assert rows["point"]["matches"] == 150  # it matches all, and none is right


def test_words_that_say_nothing_find_nothing() -> None:
    """Broken twin: words drawn at random (epsilon 0) match about as chance does, so it is the true words that match."""
    rows = compared(signed(sequence(0.0)), epsilon=0.0)
    assert rows["p2w"]["right_matches"] < 10 and rows["w2w"]["right_matches"] < 10
    assert rows["point"]["right_matches"] == 150


def test_the_table_of_ratios_is_described(tmp_path: Path) -> None:
    """Planted: matches of two pictures are right and of two others wrong, so each case has a ratio between."""
    cases = [MatchingCase(sent=None, distance="point"), MatchingCase(sent=Profile.paper(2), distance="p2s")]
    pairs = [sequence(0.0), sequence(9.0)]
    rows = evaluate(pairs, cases, codebook=BOOK, decoys=POOL, randomness=seeded("test"))
    write_ratios(tmp_path / "r.json", rows)
    table = json.loads((tmp_path / "r.json").read_text())
    validate("evaluate-homographies-calibrate", table)
    assert set(table["max_ratio"]) == {"sift-L2/raw/0/point", "sift-L2/paper/2/p2s"}


def test_transfer_errors_count_from_pixel_centers() -> None:
    """Keypoint (0.5, 0.5) is the center of the first pixel, H's (0, 0); behind the horizon there is no error to count."""
    indices = np.array([[0, 0], [5, 5]])
    np.testing.assert_allclose(transfer_errors(sequence(0.0), 0, indices), 0, atol=1e-4)
    flipped = replace(sequence(0.0), homographies=(np.array([[1, 0, 0], [0, 1, 0], [-1.0, 0, 1]]),))
    assert np.isinf(transfer_errors(flipped, 0, indices)).all()


def test_every_lifting_and_distance_is_in_the_protocol() -> None:
    cases = default_cases([2, 4], [2])
    protocol = {(c.profile.strategy, c.profile.m, c.distance) for c in cases if c.profile and c.profile.name == "paper"}
    assert protocol == {(s, m, "p2s") for s in STRATEGIES for m in (2, 4)} | {(s, 2, "s2s") for s in STRATEGIES}
    assert {c.distance for c in cases if c.profile and c.profile.name == "hardened"} == {"p2s", "s2s"}
    assert cases[0].profile is None


def test_the_study_is_reproducible() -> None:
    case = [MatchingCase(sent=Profile.paper(4), distance="s2s")]
    records = [
        evaluate([sequence(0.0)], case, codebook=BOOK, decoys=POOL, randomness=seeded("a"), workers=w)[0].as_json()
        for w in (1, 2)
    ]
    assert records[0] == records[1]


@pytest.mark.slow
def test_protocol_on_real_photographs(veil_data) -> None:
    """[D21] Fig. 2 on one viewpoint sequence: p-to-s near raw; s-to-s adversarial far below sub-hybrid."""
    from veil.extraction.sift import SiftOptions, extract_sift
    from veil.files.codebooks import bundled_codebook, bundled_decoys
    from veil.files.photographs.pictures import read_picture
    from veil_lab.files.homographies import find_sequences

    files = next(item for item in find_sequences(veil_data / "homography") if item.name == "hpatches_v_churchill")
    options = SiftOptions(max_features=800)
    real = ImageSequence(
        name=files.name,
        features=tuple(extract_sift(read_picture(path), options) for path in files.pictures[:4]),
        homographies=files.homographies[:3],
    )
    cases = [
        MatchingCase(sent=None, distance="point"),
        MatchingCase(sent=Profile.paper(2, "random"), distance="p2s"),
        *(MatchingCase(sent=Profile.paper(m), distance="p2s") for m in (2, 8)),
        MatchingCase(sent=Profile.hardened(quantized=True), distance="p2s"),
        MatchingCase(sent=real_decoys(2), distance="s2s"),
        MatchingCase(sent=Profile.paper(4, "adversarial"), distance="s2s"),
    ]
    rows = evaluate([real], cases, codebook=bundled_codebook(), decoys=bundled_decoys(), randomness=seeded("real"))
    raw, random, two, eight, hard, subspace, adversarial = (100 * row.as_json()["mma"]["3"] for row in rows)
    assert abs(random - raw) < 1
    assert min(two, eight, hard) > raw - 5
    assert subspace > raw - 10
    assert adversarial < subspace - 10

"""The study of attacks by descriptor on planted features: what must fall falls, what hides it does not, dashes have reasons."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.attacks.on_subspaces import SUBSPACE_ATTACKS
from veil.attacks.on_words import WORD_ATTACKS
from veil.codebooks.codebook import Provenance
from veil.codebooks.compression import fit_pca
from veil.codebooks.decoys import DecoyPool
from veil.codebooks.dictionary import Dictionary
from veil.errors import InputError, RangeError
from veil.features import Features
from veil.mechanisms.subspaces import on_eight_bit_grid
from veil.progress import StepCount, ignore_steps
from veil.space import Space
from veil_lab.studies.attacks import by_descriptor
from veil_lab.studies.attacks.by_descriptor import EIGHT_BITS, NO_DENSITY, NO_GRID, DescriptorRow, DescriptorStudy, attack_rows
from veil_lab.studies.attacks.descriptor_material import DescribedPhotographs, StudyBooks, database_of, in_eight_bits
from worlds import features, generator, sift_like, unit
from worlds.recorded_steps import RecordedSteps

PROVENANCE = Provenance(source="planted", license="", image_count=1, descriptor_count=1)
STUDY = DescriptorStudy(features=6, structural=2, epsilons=(12.0,), seconds=30.0)


def signed(item: Features, dim: int) -> Features:
    """The same keypoints with signed descriptors, as of a learned feature."""
    random = generator(item.image_digest.hex())
    descriptors = unit(random.normal(size=(len(item), dim))).astype(np.float32)
    return replace(item, descriptors=descriptors, space=Space(descriptor="xfeat", normalization="L2", dim=dim))


def planted(dim: int | None) -> tuple[DescribedPhotographs, StudyBooks]:
    """Photographs and books of 8-bit descriptors, or of signed ones of `dim` numbers. A second view is the photograph itself,
    noticed by another camera."""
    random = generator("by descriptor")
    images = [features(random, 60, name=str(k)) for k in range(5)]
    words = sift_like(random, 4096)
    if dim is not None:
        images = [signed(item, dim) for item in images]
        words = unit(random.normal(size=(4096, dim))).astype(np.float32)
    space = images[0].space
    kind = {"descriptor": space.descriptor, "normalization": "L2", "provenance": PROVENANCE}
    pca = fit_pca(unit(words + (random.uniform(0, 4, words.shape) if dim is None else 0)), 48)
    dither = 4.0 if dim is None else 0.0
    books = StudyBooks(
        dictionary=Dictionary(stored=words[:2048], slices=1, pca=pca, dither_steps=dither, **kind),  # type: ignore[arg-type]
        decoys=DecoyPool(stored=words[2048:], slices=16, pca=None, dither_steps=0.0, **kind),  # type: ignore[arg-type]
        database=database_of(images[4:], 1000, 0),
    )
    moved = replace(images[0].camera, params=(510.0, 510.0, 320.0, 240.0))
    return (
        DescribedPhotographs(
            attacked={"a": images[0]},
            views={"a": replace(images[0], camera=moved, image_digest=bytes(32))},
            others={"b": images[1], "c": images[2]},
            owned=images[3:],
        ),
        books,
    )


def by_name(rows: list[DescriptorRow]) -> dict[tuple[str, str], DescriptorRow]:
    return {(row.form.split(",")[0] if "8 bits" not in row.form else "8 bits", row.attack): row for row in rows}


def recovered(row: DescriptorRow) -> float:
    assert row.finding.score is not None, row.finding.skipped
    return row.finding.score.recovered.value


@pytest.mark.slow
def test_what_is_planted_in_eight_bits_falls_and_the_hardened_form_hides_it() -> None:
    """Planted truth: 8-bit descriptors. The lattice, a second release and a second view find them in the paper's subspaces;
    the twin that hides them, the hardened form of the same descriptors, keeps them from the lattice."""
    steps = RecordedSteps()
    rows = by_name(attack_rows("sift", *planted(None), STUDY, progress=steps))
    steps.require_time_left(last=0.9)
    for attack in ("lattice", "repeat", "matched views", "matched photographs"):
        assert recovered(rows["paper", attack]) == 1, attack
    assert recovered(rows["hardened", "lattice"]) == 0
    assert rows["8 bits", "lattice"].finding.skipped == EIGHT_BITS
    # Random descriptors: the attacker's own say nothing of them, in either form.
    assert recovered(rows["paper", "nearest"]) == recovered(rows["hardened", "nearest"]) == 0
    assert rows["paper", "modes"].finding.skipped == NO_DENSITY
    # At an epsilon of 12 the true word is sent nearly always, and two releases have it in common.
    assert recovered(rows["words", "repeat"]) > 0.9 > 0.6 > recovered(rows["words", "posterior"]) > 0.25


@pytest.mark.slow
def test_signed_descriptors_have_no_lattice_unless_they_were_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted truth: signed descriptors of full precision, and the same in 8 bits, which the lattice attack finds.

    Broken twin: descriptors that are said to be rounded and are not; the same attack finds none of them.
    """
    photographs, books = planted(64)
    steps = RecordedSteps()
    listed = attack_rows("xfeat", photographs, books, STUDY, progress=steps)
    steps.require_time_left(last=0.9)
    rows = by_name(listed)
    assert rows["paper", "lattice"].finding.skipped == rows["hardened", "lattice"].finding.skipped == NO_GRID
    assert "non-negative" in rows["paper", "vertex"].finding.skipped
    assert recovered(rows["8 bits", "lattice"]) == 1
    assert recovered(rows["paper", "repeat"]) == 1
    # Of so small a pool two releases share decoys, too, and meet in these.
    assert recovered(rows["hardened", "repeat"]) > 0.2
    # Every attack of the list has a row in each form that gives it something to look at.
    for form, attacks in (("paper", SUBSPACE_ATTACKS), ("hardened", SUBSPACE_ATTACKS), ("words", WORD_ATTACKS)):
        assert {attack.name for attack in attacks} <= {name for place, name in rows if place == form}
    assert all((row.finding.score is None) == bool(row.finding.skipped) for row in listed)
    monkeypatch.setattr(by_descriptor, "in_eight_bits", lambda item: item)
    monkeypatch.setattr(by_descriptor, "WORD_ATTACKS", ())
    lab = by_descriptor._Lab(
        descriptor="xfeat", photographs=photographs, books=books.with_runs(), study=STUDY, count=StepCount(ignore_steps, 1)
    )
    (twin,) = lab.eight_bits(by_descriptor.Profile.paper(4), by_descriptor.Selection(features=60, min_distance_px=0.0))
    assert recovered(twin) == 0


def test_rounded_descriptors_lie_on_a_grid() -> None:
    """Oracle: the check that refuses such descriptors; those that were rounded are near to those that were not."""
    item = signed(features(generator("grid"), 30), 64)
    rounded = in_eight_bits(item)
    assert on_eight_bit_grid(rounded.descriptors) and not on_eight_bit_grid(item.descriptors)
    assert np.linalg.norm(rounded.descriptors - item.descriptors, axis=1).max() < 0.02
    assert rounded.image_digest != item.image_digest


def test_books_of_other_descriptors_and_impossible_options_are_refused() -> None:
    photographs, books = planted(64)
    _, others = planted(None)
    with pytest.raises(InputError, match="of one descriptor"):
        StudyBooks(dictionary=books.dictionary, decoys=others.decoys, database=books.database)
    with pytest.raises(InputError, match="no PCA"):
        StudyBooks(dictionary=replace(books.dictionary, pca=None), decoys=books.decoys, database=books.database)
    with pytest.raises(InputError, match="one kind"):
        replace(photographs, others={"x": features(generator("x"), 5)})
    with pytest.raises(InputError, match="that are attacked"):
        replace(photographs, attacked={})
    for wrong in ({"m": 1}, {"features": 0}, {"seconds": 0.0}, {"epsilons": (float("nan"),)}):
        with pytest.raises(RangeError):
            DescriptorStudy(**wrong)

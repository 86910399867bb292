"""The study of inversion with networks and attacks whose answers are known, and its table against sums by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from veil.attacks.claims import Estimates, undecided
from veil.errors import InputError
from veil.features import Features
from veil.files.codebooks import bundled_codebook
from veil.forms import Points, Subspaces
from veil.geometry.camera import guessed
from veil.inversion.maps import SIDE, Inverts, Kind, SparseMap
from veil.inversion.quality import quality
from veil.mechanisms.profile import Strategy
from veil.mechanisms.public import publish
from veil.space import Space
from veil_lab.report.attacks import draw_inversions, draw_similarity
from veil_lab.studies.pictures.inversion import (
    Attack,
    Inverted,
    UntrainedPhotograph,
    gaps,
    inversion_study,
    known_attacks,
    rows,
)
from worlds import generator, sift_like

SIFT = Space(descriptor="sift", normalization="L2", dim=128)


class Shows:
    """A stand-in for a network whose pictures show their input: each pixel is the mean of its first vector."""

    def __init__(self, kind: Kind) -> None:
        self.kind: Kind = kind
        self.seen: list[SparseMap] = []

    def invert(self, maps: Sequence[SparseMap]) -> np.ndarray:
        self.seen.extend(maps)
        pictures = np.zeros((len(maps), SIDE * SIDE, 3), dtype=np.uint8)
        for picture, item in zip(pictures, maps, strict=True):
            picture[item.cells] = np.clip(2000 * np.abs(item.values[:, 0].mean(axis=1, keepdims=True)), 0, 255)
        return pictures.reshape(-1, SIDE, SIDE, 3)


def photograph(name: str, count: int = 40) -> UntrainedPhotograph:
    random = generator(name)
    features = Features(
        keypoints=random.uniform(0, [320, 280], (count, 2)).astype(np.float32),
        descriptors=sift_like(random, count),
        space=SIFT,
        camera=guessed(320, 280),
        image_digest=name.encode().ljust(32, b"."),
    )
    return UntrainedPhotograph(name=name, rgb=random.integers(0, 256, (280, 320, 3), dtype=np.uint8), features=features)


PHOTOGRAPHS = [photograph("one"), photograph("two"), photograph("three")]


def knows(form: Subspaces, others: Sequence[Subspaces]) -> Estimates:
    """An attack that estimates the true descriptors, undecided about every second feature.

    It knows the photograph by its descriptors, which lie in the subspaces.
    """
    assert len(others) == 2 and all(other.m == form.m and other is not form for other in others)
    for item in PHOTOGRAPHS:
        vectors = publish(item.features).vectors.astype(np.float64)
        offset = vectors - form.origin
        inside = np.einsum("fm,fmn->fn", np.einsum("fmn,fn->fm", form.basis, offset), form.basis)
        if np.abs(offset - inside).max() < 1e-4:
            vectors[::2] = np.nan
            certified = np.zeros(len(form), dtype=bool)
            return Estimates(points=vectors, confidence=np.isfinite(vectors[:, 0]).astype(float), certified=certified)
    raise AssertionError("the lifted descriptors lie in none of these subspaces")


def done(
    attacks: dict[str, Attack],
    direct: dict[Strategy, Inverts] | None = None,
    dims: tuple[int, ...] = (2, 4),
    liftings: tuple[Strategy, ...] = ("sub-hybrid",),
) -> tuple[list[Inverted], Shows]:
    raw, book = Shows("raw"), bundled_codebook()
    steps: list[tuple[int, int]] = []
    rows = inversion_study(
        PHOTOGRAPHS,
        attacks,
        raw=raw,
        direct=direct or {},
        codebook=book,
        decoys=book,
        case="a test",
        liftings=liftings,
        dims=dims,
        progress=lambda *step: steps.append(step),
    )
    total = len(PHOTOGRAPHS) * (1 + len(liftings) * len(dims))
    assert steps == [(step, total) for step in range(1, total + 1)]
    return rows, raw


@pytest.mark.slow
def test_what_an_attack_finds_is_inverted_and_measured() -> None:
    """Planted: an attack that knows half of the truth, and one that knows nothing."""
    direct = Shows("subspaces")
    rows, _ = done({"database": knows, "nothing": lambda form, others: undecided(len(form), 128)}, {"sub-hybrid": direct})
    assert len(rows) == 3 + 2 * 3 * 3
    for item in rows:
        original = next(p for p in PHOTOGRAPHS if p.name == item.name)
        expected = quality(original.frame.crop(original.rgb), item.rgb)
        assert (item.mae, item.ssim, item.psnr) == (expected.mae, expected.ssim, expected.psnr)
        whole = next(other for other in rows if other.name == item.name and other.attack == "raw")
        if item.attack == "database":
            assert item.decided == 0.5 and item.distance == pytest.approx(0, abs=1e-6)
            assert 0 < item.features < whole.features
            assert (item.rgb[item.rgb > 0] == whole.rgb[item.rgb > 0]).all()
        elif item.attack == "nothing":
            assert (item.decided, item.features, item.rgb.max()) == (0, 0, 0) and str(item.distance) == "nan"
        elif item.attack == "direct":
            assert item.distance is None and item.features == whole.features
    assert [item.values.shape[1] for item in direct.seen] == [3, 3, 3, 5, 5, 5]
    assert {(item.attack, item.m) for item in rows if item.m == 0} == {("raw", 0)}


@pytest.mark.slow
def test_the_attacks_of_the_paper_run_and_random_guesses_do_not_pass_for_them() -> None:
    """With the words known the database attack is nearer to the truth than a guess, which is at chance."""
    book = bundled_codebook()
    words = Points(vectors=book.vectors, space=book.raw_space)
    public = Points(vectors=np.ascontiguousarray(book.vectors[1::2]), space=book.raw_space)
    random = generator("guesses")

    def guess(form: Subspaces, others: Sequence[Subspaces]) -> Estimates:
        points = words.vectors[random.integers(len(words), size=len(form))].astype(np.float64)
        return Estimates(points=points, confidence=np.zeros(len(form)), certified=np.zeros(len(form), dtype=bool))

    listed, _ = done({**known_attacks(words, public, seed=0), "guess": guess}, dims=(2,))
    distance = {row.attack: row.distance for row in rows(listed)}
    assert {"raw", "database", "clustering", "nearest", "guess"} == set(distance)
    assert distance["raw"] == 0 and distance["database"] is not None and distance["guess"] is not None
    assert distance["database"] < distance["guess"] and 0.6 < distance["guess"] < 1.3


@pytest.mark.slow
def test_random_lifting_gives_descriptors_away_and_is_asked_for_no_decoys() -> None:
    """Laws of [D21], Sec. 4.2: a random plane through a descriptor of the database has it for its nearest entry.

    One with a decoy of the database meets two entries, and rounding chooses.
    """
    book = bundled_codebook()
    public = Points(
        vectors=np.concatenate([book.vectors, *(publish(item.features).vectors for item in PHOTOGRAPHS)]), space=book.raw_space
    )
    listed, _ = done(
        known_attacks(public, public, seed=0), {"random": Shows("subspaces")}, dims=(2,), liftings=("random", "adversarial")
    )
    found = {(row.lifting, row.attack): row for row in rows(listed)}
    assert set(found) == {
        ("none", "raw"),
        ("random", "nearest"),
        ("random", "direct"),
        ("adversarial", "nearest"),
        ("adversarial", "database"),
        ("adversarial", "clustering"),
    }  # the network of direct inversion knows random lifting alone
    random, adversarial = found["random", "nearest"].distance, found["adversarial", "nearest"].distance
    assert random == pytest.approx(0, abs=1e-6) and adversarial is not None and adversarial > 0.2
    assert {gap.lifting for gap in gaps(listed)} == {"random", "adversarial"}


def made(attack: str, m: int, name: str, ssim: float) -> Inverted:
    rgb = generator(f"{attack} {m} {name}").integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    return Inverted(
        name=name,
        lifting="none" if attack == "raw" else "sub-hybrid",
        attack=attack,
        m=m,
        features=9,
        decided=1.0,
        distance=None,
        mae=0.1,
        ssim=ssim,
        psnr=20.0,
        rgb=rgb,
    )


TABLE = [
    *(made("raw", 0, name, ssim) for name, ssim in (("a", 0.6), ("b", 0.8))),
    *(made("nearest", 2, name, ssim) for name, ssim in (("a", 0.3), ("b", 0.2))),
    *(made("database", 2, name, ssim) for name, ssim in (("a", 0.5), ("b", 0.9))),
]


def test_the_table_and_its_gaps_by_hand() -> None:
    table = rows(TABLE)
    assert [(row.attack, row.m) for row in table] == [("raw", 0), ("database", 2), ("nearest", 2)]
    assert table[0].ssim == pytest.approx(0.7) and table[2].ssim == pytest.approx(0.25)
    expected = stats.t.interval(0.95, 1, loc=0.25, scale=0.05)
    np.testing.assert_allclose(table[2].interval, expected, rtol=1e-12)
    first, second = gaps(TABLE)
    assert (first.better, first.worse, second.better, second.worse) == ("raw", "database", "database", "nearest")
    assert first.mean == pytest.approx(0.0) and first.wins == 0.5  # +0.1 and -0.1
    assert second.mean == pytest.approx(0.45) and second.wins == 1.0
    np.testing.assert_allclose(second.interval, stats.t.interval(0.95, 1, loc=0.45, scale=0.25), rtol=1e-12)


@pytest.mark.slow
def test_figures_hold_every_picture(tmp_path: Path) -> None:
    originals = {name: np.full((SIDE, SIDE, 3), 200, dtype=np.uint8) for name in ("a", "b")}
    draw_inversions(tmp_path / "grid.png", originals, TABLE, m=2, title="a test")
    drawn = np.asarray(Image.open(tmp_path / "grid.png").convert("RGB"))
    noisy = np.abs(np.diff(drawn.astype(int), axis=1)).mean(axis=2) > 20
    assert noisy.mean() > 0.3  # six of eight panels are noise
    draw_similarity(tmp_path / "curve.svg", rows(TABLE), title="a test")
    assert all(name in (tmp_path / "curve.svg").read_text() for name in ("<svg",))
    with pytest.raises(InputError, match="at m = 2 of c"):
        draw_inversions(tmp_path / "x.png", {"c": originals["a"]}, TABLE, m=2, title="")


def test_networks_of_another_kind_are_refused() -> None:
    book = bundled_codebook()
    known: dict[Strategy, Inverts] = {"random": Shows("raw")}
    for raw, direct in ((Shows("words"), {}), (Shows("raw"), known)):
        with pytest.raises(InputError, match="network"):
            inversion_study(PHOTOGRAPHS, {}, raw=raw, direct=direct, codebook=book, decoys=book, case="x")

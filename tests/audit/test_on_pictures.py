"""Pictures of releases, with a network that only records its input: which pixels, and whose descriptors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from veil.attacks.attack import Attempt
from veil.attacks.claims import Estimates
from veil.attacks.registry import ATTACKS
from veil.attacks.target import Effort, Knowledge
from veil.audit.ground_truth import find_truth
from veil.audit.on_pictures import UNPROTECTED, DrawnPicture, as_sift, reconstructions
from veil.audit.run import Examined, Tried, examine
from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.forms import Subspaces
from veil.inversion.maps import SIDE, Frame, Inverts, Kind, SparseMap, points_map
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from veil.space import Space
from veil.wire.message import LineUpload, Message
from worlds import generator
from worlds.recorded_steps import RecordedSteps
from worlds.releases import released, taken


class Shows:
    """Inverter that keeps the map of each central square, the first that it is given, and paints all gray."""

    def __init__(self, kind: Kind) -> None:
        self.kind: Kind = kind
        self.seen: list[SparseMap] = []

    def invert(self, maps: Sequence[SparseMap]) -> np.ndarray:
        self.seen.append(maps[0])
        return np.full((len(maps), SIDE, SIDE, 3), 128, dtype=np.uint8)


KNOWLEDGE = Knowledge(codebook=bundled_codebook(), decoys=bundled_codebook(), database=bundled_decoys())
HARDENED = Knowledge(codebook=bundled_codebook(), decoys=bundled_decoys(), database=bundled_codebook())


def examined(message: Message, features: Features, tried: tuple[Tried, ...] = ()) -> Examined:
    return Examined(name="a", message=message, tried=tried, truth=find_truth(message, {"a": features}, KNOWLEDGE.codebook))


def drawn(
    item: Examined,
    features: Features,
    knowledge: Knowledge = KNOWLEDGE,
    networks: Mapping[Kind, Inverts] | None = None,
    photograph: np.ndarray | None = None,
) -> tuple[list[DrawnPicture], Mapping[Kind, Inverts]]:
    networks = networks or {"raw": Shows("raw")}
    steps, effort = RecordedSteps(), Effort(threads=1)
    shown = reconstructions(item, knowledge, networks, features=features, photograph=photograph, effort=effort, progress=steps)
    if shown:
        steps.require_time_left(last=0.0)
    return shown, networks


def few(door: dict[str, Features]) -> Features:
    """Features at different places: of those at one place a map keeps one, and which one is chance."""
    features = next(iter(door.values()))
    frame = Frame(width=features.camera.width_px, height=features.camera.height_px)
    cells = np.floor(frame.moved(features.keypoints)).astype(np.int64) @ [1, SIDE]
    _, first, count = np.unique(cells, return_index=True, return_counts=True)
    return taken(features, np.sort(first[count == 1])[:40])


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_a_broken_release_shows_what_raw_features_show(door: dict[str, Features]) -> None:
    """The lattice attack recovers all: its map is that of the raw features to rounding; the nearest neighbor's is not."""
    features = few(door)
    message, _ = released(features, Profile.paper(4))
    photograph = generator("photograph").integers(
        0, 256, (features.camera.height_px, features.camera.width_px, 3), dtype=np.uint8
    )
    shown, networks = drawn(examined(message, features), features, photograph=photograph)
    assert [item.attack for item in shown] == [UNPROTECTED, "lattice", "nearest, projected", "database"]
    shows = networks["raw"]
    assert isinstance(shows, Shows)
    raw, lattice, nearest, _ = shows.seen
    assert np.array_equal(raw.cells, lattice.cells) and len(raw) == shown[0].features > 20
    assert np.abs(raw.values - lattice.values).max() < 1e-3 < np.abs(raw.values - nearest.values).max()
    assert all(item.ssim is not None and item.release == "a" for item in shown)
    record = shown[1].as_json()
    assert set(record) == {"release", "attack", "features", "mae", "ssim", "psnr"} and (record["mae"] or 0) > 0


@pytest.mark.slow
def test_without_the_photograph_nothing_is_measured(door: dict[str, Features]) -> None:
    features = few(door)
    message, _ = released(features, Profile.paper(4))
    item = Examined(name="a", message=message, tried=(), truth=None)
    shown = reconstructions(item, KNOWLEDGE, {"raw": Shows("raw")}, effort=Effort(threads=1))
    assert [picture.attack for picture in shown] == ["lattice", "nearest, projected", "database"]
    assert all(picture.as_json()["ssim"] is None for picture in shown)


def test_direct_inversion_needs_a_network_for_the_form(door: dict[str, Features]) -> None:
    features = few(door)
    for profile, kind in ((Profile.paper(2), "subspaces"), (None, "words")):
        message, _ = released(features, profile)
        networks: dict[Kind, Inverts] = {"subspaces": Shows("subspaces"), "words": Shows("words")}
        shown, _ = drawn(examined(message, features), features, networks=networks)
        assert [picture.attack for picture in shown] == ["direct inversion"]
        (seen,) = [item for network in networks.values() if isinstance(network, Shows) for item in network.seen]
        assert seen.kind == kind and seen.values.shape[1] == (3 if kind == "subspaces" else 2)
    message, _ = released(features, Profile.hardened(quantized=True))  # no network reads what went through a PCA
    assert drawn(examined(message, features), features, HARDENED, {"subspaces": Shows("subspaces")})[0] == []


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "profile", [Profile.paper(4), Profile.hardened(quantized=True), None], ids=["paper", "hardened", "words"]
)
def test_lines_are_drawn_where_attacks_put_them(door: dict[str, Features], profile: Profile | None) -> None:
    """Broken twin: pictures at the true keypoints, which nobody knows."""
    features = few(door)
    message, _ = released(features, profile, lines=True)
    assert isinstance(message, LineUpload)
    knowledge = HARDENED if isinstance(message.form, Subspaces) and message.form.profile == "hardened" else KNOWLEDGE
    truth = find_truth(message, {"a": features}, knowledge.codebook)
    (item,) = examine({"a": message}, {"a": truth}, knowledge, effort=Effort(features=4, structural=1))
    shown, networks = drawn(item, features, knowledge)
    shows = networks["raw"]
    assert isinstance(shows, Shows)
    raw, guessed = shows.seen[0], shows.seen[-1]
    assert shown[0].attack == UNPROTECTED and len(shown) >= 2
    assert len(np.intersect1d(raw.cells, guessed.cells)) < 0.2 * len(raw)


@pytest.mark.slow
def test_undecided_places_are_left_out(door: dict[str, Features]) -> None:
    features = few(door)
    message, _ = released(features, Profile.paper(2), lines=True)
    points = np.full((len(message), 2), np.nan)
    points[:3] = [[300.5, 400.5], [310.5, 410.5], [320.5, 420.5]]
    guess = Estimates(points=points, confidence=np.ones(len(points)), certified=np.zeros(len(points), dtype=bool))
    (attack,) = [attack for attack in ATTACKS if attack.name == "line density"]
    attempt = Attempt(label="line density", rows=np.arange(len(message)), claim=guess)
    _, networks = drawn(examined(message, features, (Tried(attack=attack, outcome=attempt),)), features)
    shows = networks["raw"]
    assert isinstance(shows, Shows) and [len(item) for item in shows.seen[1:]] == [3, 3, 3]


def test_estimates_lead_back_to_sift(door: dict[str, Features]) -> None:
    """RootSIFT by the definition: its square, of unit length. Undecided rows stay undecided."""
    sift = publish(few(door)).vectors.astype(np.float64)
    root = np.sqrt(sift / sift.sum(axis=1, keepdims=True))
    space = Space(descriptor="sift", normalization="L1_ROOT", dim=128)
    np.testing.assert_allclose(as_sift(root, space, KNOWLEDGE), sift, atol=1e-6)
    root[0] = np.nan
    assert np.isnan(as_sift(root, space, KNOWLEDGE)[0]).all()
    frame = Frame(width=100, height=100)
    assert len(points_map(frame, np.array([[5.0, 5.0], [50.0, 50.0]]), as_sift(root[:2], space, KNOWLEDGE))) == 1


@pytest.mark.slow
def test_of_many_features_some_are_drawn_for_all_pictures(door: dict[str, Features]) -> None:
    features = few(door)
    message, _ = released(features, Profile.paper(2))
    networks: dict[Kind, Inverts] = {"raw": Shows("raw"), "subspaces": Shows("subspaces")}
    effort = Effort(threads=1, pictured=10)
    shown = reconstructions(examined(message, features), KNOWLEDGE, networks, features=features, effort=effort)
    seen = [item for network in networks.values() if isinstance(network, Shows) for item in network.seen]
    assert len(shown) == len(seen) == 5 and 3 < len(seen[0]) <= 10
    assert all(np.array_equal(item.cells, seen[0].cells) for item in seen)


def test_other_descriptors_have_no_network(door: dict[str, Features]) -> None:
    features = few(door)
    message, _ = released(features, Profile.paper(2))
    space = replace(message.form.space, descriptor="hardtfeat")
    other = replace(message, form=replace(message.form, space=space))
    item = Examined(name="a", message=other, tried=(), truth=None)
    assert reconstructions(item, KNOWLEDGE, {"raw": Shows("raw")}) == []

"""The second implementation (tests/stranger) reads and writes messages, codebooks and words as docs/reference/wire.md says.

It knows nothing of veil. The oracles are pinned bytes, bytes that veil wrote, and what veil reads of the same bytes.
"""

from __future__ import annotations

import ast
import base64
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2

from stranger import messages, words
from stranger.codebooks import Codebook as StrangerBook
from stranger.codebooks import read_codebook
from veil.codebooks.compression import fit_pca
from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys, write_codebook
from veil.forms import Subspaces
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms import HideInLines, Profile, privatize, privatize_words
from veil.mechanisms.profile import STRATEGIES
from veil.randomness import fresh
from veil.wire import Message, Upload, decode, encode
from worlds.documents import REFERENCE
from worlds.releases import taken
from worlds.typescript import dictionary
from worlds.typescript_messages import messages as of_every_camera

TESTS = Path(__file__).parents[1]
GOLDEN = sorted((TESTS / "mechanisms" / "golden").glob("*.veil"))
DATA = Path(str(files("veil"))) / "data"
DOWN = np.array([0.05, 0.99, 0.12]) / np.linalg.norm([0.05, 0.99, 0.12])
PROFILES = {
    "hardened": Profile.hardened(quantized=True),
    "hardened of floats": Profile.hardened(quantized=False, compress=True),
    **{f"paper {strategy}": Profile.paper(m, strategy) for m, strategy in zip((3, 2, 4, 6, 8), STRATEGIES, strict=True)},
}


def sources() -> list[Path]:
    return sorted((TESTS / "stranger").glob("*.py"))


def test_it_imports_the_standard_library_numpy_and_itself_alone() -> None:
    """Oracle: the syntax tree of each file. Broken twin: a file that imports veil within a function."""

    def foreign(text: str) -> set[str]:
        modules = set()
        for item in ast.walk(ast.parse(text)):
            if isinstance(item, ast.Import):
                modules |= {alias.name.split(".")[0] for alias in item.names}
            if isinstance(item, ast.ImportFrom):
                modules.add((item.module or ".").split(".")[0] if not item.level else ".")
        return modules - sys.stdlib_module_names - {"numpy", "stranger"}

    assert len(sources()) >= 8
    assert {path.name: foreign(path.read_text()) for path in sources() if foreign(path.read_text())} == {}
    assert foreign("def f():\n    from veil.wire import decode\n") == {"veil"}


@pytest.mark.slow
def test_it_works_where_veil_cannot_be_imported() -> None:
    """A process of its own, in which every import of veil fails, loads all of it and writes each golden file again."""
    code = f"""
import sys
sys.modules["veil"] = None
sys.path.insert(0, {str(TESTS)!r})
from pathlib import Path
from stranger import canonical, codebooks, messages, one_server, receipts, service, tiles, words
for path in {[str(path) for path in GOLDEN]!r}:
    data = Path(path).read_bytes()
    assert messages.encode(messages.decode(data)) == data, path
print([name for name in sys.modules if name.split(".")[0] == "veil" and sys.modules[name]])
try:
    import veil
except ImportError:
    print("no veil")
"""
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert (done.stdout.split("\n"), done.returncode) == (["[]", "no veil", ""], 0), done.stderr


def as_read_by_both(data: bytes) -> tuple[messages.Message, Message]:
    """A message as the stranger and as veil read it, once the stranger has written the same bytes again."""
    stranger, ours = messages.decode(data), decode(data)
    assert messages.encode(stranger) == data
    return stranger, ours


def require_equal(stranger: messages.Message, ours: Message) -> None:
    """Assert that both implementations read the same from one message."""
    camera, form = ours.camera, ours.form
    assert (stranger.model, stranger.width, stranger.height) == (camera.model, camera.width_px, camera.height_px)
    assert stranger.params == tuple(camera.params)
    assert stranger.focal_deviation == (camera.focal.deviation if camera.focal_is_known else None)
    space = (form.space.descriptor, form.space.normalization, form.space.dim, form.space.dither_steps, form.m)
    assert (stranger.descriptor, stranger.normalization, stranger.dimension, stranger.dither, stranger.m) == space
    assert stranger.codebook == (bytes.fromhex(form.space.codebook) if form.space.codebook else bytes(32))
    down = ours.gravity if isinstance(ours, Upload) else ours.lines.gravity
    assert (stranger.gravity is None) == (down is None)
    if down is not None:
        assert stranger.gravity == tuple(down.tolist())
    if isinstance(ours, Upload):
        assert np.array_equal(stranger.xy, ours.keypoints)
    else:
        assert np.array_equal(stranger.lines, ours.lines.coefficients)
        assert np.array_equal(stranger.aligned, ours.lines.aligned)
    if isinstance(form, Subspaces):
        assert stranger.profile == form.profile
        # veil makes bases orthonormal again, and takes origins to the nearest point: the subspaces are the same.
        for row in range(len(form)):
            span = form.basis[row].astype(np.float64)
            for vector in (
                *stranger.bases[row].astype(np.float64),
                stranger.origins[row].astype(np.float64) - form.origin[row],
            ):
                assert np.linalg.norm(vector - span.T @ (span @ vector)) < 5e-3
    else:
        assert np.array_equal(stranger.ids, form.ids)
        assert (stranger.dictionary_size, stranger.epsilon) == (form.mechanism.dictionary_size, form.mechanism.epsilon)
        assert stranger.dictionary.hex() == form.dictionary


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_messages_are_read_and_written(path: Path) -> None:
    """Oracle: the pinned bytes, and what veil reads of them."""
    require_equal(*as_read_by_both(path.read_bytes()))


def released(features: Features, profile: Profile | None, lines: HideInLines | None) -> Message:
    """A release as a device makes it; words of 2 for None."""
    book = bundled_codebook(features.space.descriptor)
    if profile is None:
        law = SubsetMechanism(dictionary_size=len(book), epsilon=8.0, m=2)
        return privatize_words(features, mechanism=law, dictionary=book, randomness=fresh(), lines=lines).upload
    decoys = bundled_decoys(features.space.descriptor) if profile.decoys == "descriptors" else book
    made = privatize(features, profile=profile, compression=book.compression, decoys=decoys, randomness=fresh(), lines=lines)
    return made.upload


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PROFILES, "words"])
@pytest.mark.parametrize("hidden", ["positions", "lines"])
@pytest.mark.parametrize("upright", [False, True], ids=["no gravity", "gravity"])
def test_every_form_is_read_and_written(door: dict[str, Features], name: str, hidden: str, upright: bool) -> None:
    """Oracle: byte for byte what veil wrote, and the values that veil reads."""
    features = taken(next(iter(door.values())), np.arange(21))
    profile = PROFILES.get(name)
    if name == "hardened of floats":
        floats = np.random.default_rng(5).normal(size=(21, 128)).astype(np.float32)
        floats /= np.linalg.norm(floats, axis=1, keepdims=True)
        features = replace(features, descriptors=floats, space=bundled_codebook("aliked-n16rot").raw_space)
    lines = HideInLines(gravity=DOWN if upright else None) if hidden == "lines" else None
    upload = released(features, profile, lines)
    if upright and isinstance(upload, Upload):
        upload = replace(upload, gravity=DOWN)
    for dtype in ("float16", "float32"):
        stranger, ours = as_read_by_both(encode(upload, dtype=dtype))
        assert stranger.kind == 1 + (hidden == "lines") + 2 * (profile is None)
        require_equal(stranger, ours)


def test_every_camera_model_is_read_and_written() -> None:
    """Oracle: the messages that the client in TypeScript is compared with, of words and of every camera model."""
    read = [as_read_by_both(base64.b64decode(item["bytes"])) for item in of_every_camera() if "bytes" in item]
    assert {stranger.model for stranger, _ in read} == set(messages.PARAMETERS)
    for stranger, ours in read:
        require_equal(stranger, ours)


def test_the_example_of_packed_ids() -> None:
    """Oracle: the page's own example, worked out by hand."""
    assert "K = 100 and m = 2 give w = 4" in (REFERENCE / "wire.md").read_text()
    assert messages.width_of(100, 2) == 4
    assert messages.packed(np.array([[3, 70]]), 100) == bytes([0x23, 0x21])


def test_another_order_of_bits_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken twin: a reader that takes the highest bit of each byte first. It refuses golden messages, or reads other words."""
    seen = {path.stem: messages.decode(path.read_bytes()) for path in GOLDEN if "words" in path.stem}
    assert len(seen) == 2
    monkeypatch.setattr(messages, "BITS", "big")
    for path in GOLDEN:
        if path.stem in seen:
            with suppress(messages.Refused):
                assert not np.array_equal(messages.decode(path.read_bytes()).ids, seen[path.stem].ids)
            assert messages.encode(seen[path.stem]) != path.read_bytes()


def codebooks() -> Iterator[tuple[str, bytes, str]]:
    """Files of codebooks, with the digest that veil computes of their content."""
    for descriptor, name in (("sift", "sift-l2"), ("aliked-n16rot", "aliked-n16rot-l2")):
        for what, book in (("codebook", bundled_codebook(descriptor)), ("decoys", bundled_decoys(descriptor))):
            yield f"{what} {name}", (DATA / f"{what}-{name}.npz").read_bytes(), book.digest


@pytest.mark.slow
def test_digests_of_codebooks_are_what_the_page_says(tmp_path: Path) -> None:
    """Oracle: veil's digest. Bundled files of both formats, and new ones: of floats, of texts that are escaped, with a PCA.

    Broken twins: a file with one level of a word changed, and the digest of the file itself.
    """
    formats = {name: (data, digest) for name, data, digest in codebooks()}
    book = dictionary(floats=True)
    assert not book.provenance.source.isascii()
    for name, made in (("escaped", book), ("with a PCA", replace(book, pca=fit_pca(book.vectors, 8), dither_steps=1e-5))):
        write_codebook(tmp_path / "book.npz", made)
        formats[name] = ((tmp_path / "book.npz").read_bytes(), made.digest)
    for name, (data, digest) in formats.items():
        assert read_codebook(data).digest == digest, name
    write_codebook(tmp_path / "book.npz", book)
    data = (tmp_path / "book.npz").read_bytes()
    other = book.stored.copy()
    other[7, 7] += 1
    changed = data.replace(book.stored[7].tobytes(), other[7].tobytes())
    assert changed != data
    with pytest.raises(Exception, match=r"digest|CRC"):
        read_codebook(changed)


def test_true_words_and_their_probability_are_veils(door: dict[str, Features]) -> None:
    """Oracles: veil's exact search, but for ties, and its exact rational law."""
    book = bundled_codebook()
    stranger = read_codebook((DATA / "codebook-sift-l2.npz").read_bytes())
    features = next(iter(door.values()))
    unit = features.descriptors / np.linalg.norm(features.descriptors.astype(np.float64), axis=1, keepdims=True)
    ours, theirs = book.nearest(unit.astype(np.float32)), words.true_words(features.descriptors, stranger)
    gaps = np.abs((unit * (stranger.unit[ours] - stranger.unit[theirs])).sum(axis=1))
    assert (ours == theirs).mean() > 0.99 and gaps.max() < 1e-6
    for size, epsilon, m in ((16384, 8.0, 2), (16384, 0.0, 1), (256000, 12.5, 8), (100, 1e-9, 3), (16384, 30.0, 2)):
        assert words.truth(size, epsilon, m) == SubsetMechanism(dictionary_size=size, epsilon=epsilon, m=m).truth


@pytest.mark.slow
@pytest.mark.parametrize("twin", [False, True], ids=["as written", "with another word left out"])
def test_drawn_words_follow_the_law(twin: bool) -> None:
    """Oracle: Eq. 1 of words.md for all subsets of 2 of 5 words, by chi-square. Twin: the neighbor is never drawn."""
    law = SubsetMechanism(dictionary_size=5, epsilon=1.0, m=2)
    counts: Counter[tuple[int, ...]] = Counter()
    for _ in range(20_000):
        drawn = words.draw(3, 5, 2, words.truth(5, 1.0, 2))
        if twin and 4 in drawn:
            continue
        counts[tuple(drawn)] += 1
    total = sum(counts.values())
    expected = {(a, b): law.pmf(contains=3 in (a, b)) for a in range(5) for b in range(a + 1, 5)}
    assert sum(expected.values()) == Fraction(1)
    statistic = sum((counts[pair] - total * float(p)) ** 2 / (total * float(p)) for pair, p in expected.items())
    assert (statistic > chi2.isf(1e-6, len(expected) - 1)) == twin


def test_a_message_of_its_own_is_one_of_veils(door: dict[str, Features]) -> None:
    """A message that the stranger draws is accepted by veil's reader, and written by veil as the same bytes."""
    book: StrangerBook = read_codebook((DATA / "codebook-sift-l2.npz").read_bytes())
    features = next(iter(door.values()))
    camera = features.camera
    made = words.message_of(
        features.descriptors,
        features.keypoints,
        book,
        epsilon=8.0,
        m=3,
        camera=(camera.model, camera.width_px, camera.height_px, tuple(camera.params)),
        focal_deviation=camera.focal.deviation if camera.focal_is_known else None,
    )
    data = messages.encode(made)
    assert encode(decode(data)) == data
    require_equal(made, decode(data))
    assert not np.array_equal(made.xy, features.keypoints), "features are shuffled"
    assert math.isclose(made.epsilon, 8.0) and made.dictionary.hex() == bundled_codebook().digest

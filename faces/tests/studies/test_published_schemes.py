"""Published schemes against their definitions by plain loops, their keys, and what they keep of likeness."""

from __future__ import annotations

import numpy as np
import pytest

from veil.errors import RangeError
from veil_faces.studies.published_schemes import (
    PUBLISHED,
    BioHashing,
    IndexOfMax,
    MlpHash,
    PolyProtect,
    PublishedScheme,
    orthonormal,
)
from worlds import generator, unit

DIM = 24
SMALL: tuple[PublishedScheme, ...] = (
    BioHashing(bits=20),
    IndexOfMax(groups=30, projections=4),
    PolyProtect(),
    MlpHash(hidden=2, bits=20),
)


def descriptors(name: str, count: int) -> np.ndarray:
    return unit(generator(name).normal(size=(count, DIM)))


def test_biohashing_is_the_sign_of_each_projection() -> None:
    """Oracle: one product after another, with the key's own directions."""
    rows = descriptors("biohash", 5)
    directions = orthonormal(np.random.default_rng(3), 20, DIM)
    expected = [[1.0 if sum(a * b for a, b in zip(row, line, strict=True)) > 0 else 0.0 for line in directions] for row in rows]
    np.testing.assert_array_equal(BioHashing(bits=20).coder(3, DIM)(rows), expected)
    np.testing.assert_allclose(directions @ directions.T, np.eye(20), atol=1e-12)
    with pytest.raises(RangeError, match="1 to 24 bits"):
        BioHashing(bits=25).coder(3, DIM)


def test_index_of_max_names_the_largest_projection() -> None:
    """Oracle: the largest of each group, looked for one by one."""
    rows, scheme = descriptors("iom", 5), IndexOfMax(groups=6, projections=4)
    lines = np.random.default_rng(3).standard_normal((6, 4, DIM), dtype=np.float32)
    codes = scheme.coder(3, DIM)(rows)
    for row, code in zip(rows, codes, strict=True):
        for group in range(6):
            values = [float(lines[group, k] @ row.astype(np.float32)) for k in range(4)]
            assert code[group] == values.index(max(values))


@pytest.mark.parametrize("overlap", range(5))
def test_polyprotect_is_its_polynomials(overlap: int) -> None:
    """Oracle: each window's terms added up; windows begin 5 less the overlap apart, and the last is filled with zeros."""
    rows, scheme = descriptors("poly", 4), PolyProtect(overlap=overlap)
    coefficients, exponents = scheme.terms(3)
    assert len(set(coefficients.tolist())) == 5 and 0 not in coefficients and sorted(exponents.tolist()) == [1, 2, 3, 4, 5]
    codes = scheme.coder(3, DIM)(rows)
    for row, code in zip(rows, codes, strict=True):
        expected, start = [], 0
        while start == 0 or start + overlap < DIM:
            window = [row[start + k] if start + k < DIM else 0.0 for k in range(5)]
            expected.append(sum(c * v**e for c, v, e in zip(coefficients, window, exponents, strict=True)))
            start += 5 - overlap
        np.testing.assert_allclose(code, expected, rtol=1e-9, atol=1e-12)
    with pytest.raises(RangeError, match="overlap"):
        PolyProtect(overlap=5)


def test_mlp_hash_is_its_layers() -> None:
    """Oracle: the layers of a key, written out for one descriptor."""
    row, scheme = descriptors("mlp", 1)[0], MlpHash(hidden=2, bits=20)
    random = np.random.default_rng(3)
    layers = [orthonormal(random, out, into) for into, out in ((24, 48), (48, 48), (48, 20))]
    values = row
    for layer in layers[:2]:
        values = np.array([sum(w * v for w, v in zip(line, values, strict=True)) for line in layer])
        values = np.tanh(values / np.sqrt(np.mean(values**2)))
    np.testing.assert_array_equal(scheme.coder(3, DIM)(row[None])[0], (layers[2] @ values > 0).astype(float))


@pytest.mark.parametrize("scheme", SMALL, ids=lambda scheme: scheme.name)
def test_alike_descriptors_have_alike_codes_under_one_key_alone(scheme: PublishedScheme) -> None:
    """Noisy copies are nearer than others under one key; under two keys they are as far as others (within 4 deviations)."""
    rows, noise = descriptors("codes", 200), generator("codes").normal(size=(200, DIM))
    near = unit(rows + 0.05 * noise)
    coder, other = scheme.coder(1, DIM), scheme.coder(2, DIM)
    same = scheme.distance(coder(rows), coder(near))
    apart = scheme.distance(coder(rows), coder(np.roll(near, 1, axis=0)))
    assert np.median(same) < 0.5 * np.median(apart) and scheme.distance(coder(rows), coder(rows)).max() < 1e-9
    renewed = scheme.distance(coder(rows), other(near)) - scheme.distance(coder(rows), other(np.roll(near, 1, axis=0)))
    if not isinstance(scheme, PolyProtect):
        assert abs(renewed.mean()) < 4 * renewed.std() / np.sqrt(len(renewed))


def test_four_schemes_are_compared() -> None:
    assert [scheme.name for scheme in PUBLISHED] == ["BioHashing", "IoM", "PolyProtect", "MLP-Hash"]

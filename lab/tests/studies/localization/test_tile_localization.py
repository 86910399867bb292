"""The protocol of `veil evaluate tiles`: rows against counts by hand, and a fold of a planted street."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.geometry.similarity import Similarity
from veil.randomness import Secret, memoized
from veil.trials.form_answers import FormSetup
from veil_lab.studies.localization.false_acceptance import Fold, ReferencePlace
from veil_lab.studies.localization.tile_localization import (
    FORMS,
    TileSetting,
    TileTrial,
    false_queries,
    form_rows,
    form_trials,
    raw_trials,
    tile_rows,
    tile_trials,
)
from worlds import features, generator
from worlds.schemas import validate
from worlds.tile_streets import street

SETTING = TileSetting(tile_bytes=30_000, axes=64, bits=8, asked=2)


def fold() -> Fold:
    """A street whose held-out photographs are taken between its mapped ones, with a reference in other coordinates."""
    place = street("tile study", cameras=10)
    queries = {f"held {x}": place.query(x) for x in (2.4, 6.7)}
    reference = ReferencePlace(
        name="street",
        features={name: item for name, (item, _) in queries.items()},
        cam_from_world={name: pose for name, (_, pose) in queries.items()},
        down={},
    )
    still = Similarity(scale=1.0, rotation=np.eye(3), translation=np.zeros(3))
    return Fold(place=reference, held_out=tuple(queries), scene=place.scene, reference_from_map=still)


@pytest.mark.slow
def test_held_out_photographs_are_localized_and_strangers_refused() -> None:
    """Oracle: the planted poses."""
    own = fold()
    (false,) = false_queries([own], {f"other {k}": features(generator(f"other {k}"), 200) for k in range(5)}, most=3, noise=1)
    assert len(false) == 5 and sum(name.startswith("other") for name in false) == 3
    trials = [*raw_trials(own), *tile_trials(own, SETTING, false)]
    (row,) = tile_rows(trials)
    validate("evaluate-tiles", {"rows": [row.as_json()], "forms": []})
    beside = row.beside
    assert (beside.queries, beside.raw_localized, beside.localized) == (2, 2, 2)
    assert (row.false_queries, row.false_poses) == (5, 0)
    assert row.fetched_bytes == 2 * (30_000 + 32 * np.ceil(np.log2(row.tiles))) and row.tiles > 2
    assert row.down_bytes == 2 * row.fetched_bytes and row.up_bytes == 2 * 2 * np.ceil(row.tiles / 8)
    assert beside.median_error is not None and beside.median_error < 0.02 and beside.astray == beside.raw_astray == 0


@pytest.mark.slow
def test_the_same_photographs_are_sent_in_other_forms() -> None:
    """Oracle: the planted poses; raw features sent to a server are matched as those of the raw map are."""
    own = fold()
    setup = FormSetup(codebook=bundled_codebook(), decoys=bundled_decoys(), randomness=memoized(Secret(bytes(range(32)))))
    raw = list(raw_trials(own))
    rows = {row.form: row for row in form_rows(list(form_trials(own, FORMS, setup)), raw)}
    validate("evaluate-tiles", {"rows": [], "forms": [row.as_json() for row in rows.values()]})
    assert list(rows) == list(FORMS) and {row.beside.queries for row in rows.values()} == {2}
    assert rows["raw"].beside.error_ratio == pytest.approx(1) and rows["raw"].beside.localized == 2
    assert rows["subspaces"].beside.localized == rows["lines"].beside.localized == 2
    features_sent = np.median([len(own.place.features[name]) for name in own.held_out])
    assert rows["raw"].upload_bytes == features_sent * (128 + 8)
    assert 0 < rows["words"].upload_bytes < rows["raw"].upload_bytes < rows["lines"].upload_bytes


def trial(scene: str, query: str, setting: TileSetting | None, error: float | None, *, true: bool = True) -> TileTrial:
    return TileTrial(
        scene=scene,
        query=query,
        true=true,
        setting=setting,
        accepted=error is not None,
        position_error=error,
        rotation_error_deg=None if error is None else 100 * error,
        tiles=5,
        manifest_bytes=300,
        all_bytes=3000,
        fetched_bytes=1000,
        up_bytes=4,
        seconds=0.5,
    )


def test_rows_are_counted_as_they_say() -> None:
    """Oracle: counts by hand. Scene b has a hundred times the scale of a: its errors must not drown those of a."""
    other = replace(SETTING, bits=4)
    raw = [trial("a", "1", None, 0.01), trial("a", "2", None, 0.03), trial("a", "3", None, None), trial("b", "1", None, 1.0)]
    own = [trial("a", "1", SETTING, 0.02), trial("a", "2", SETTING, None), trial("a", "3", SETTING, 0.06)]
    own += [
        trial("b", "1", SETTING, 1.5),
        trial("b", "x", SETTING, None, true=False),
        trial("b", "y", SETTING, 9.0, true=False),
    ]
    worse = [trial(item.scene, item.query, other, None, true=item.true) for item in own]
    rows = {(row.scene, row.setting.bits): row for row in tile_rows([*raw, *own, *worse])}
    a, b, both, none = rows["a", 8], rows["b", 8], rows["all", 8], rows["all", 4]
    assert (a.beside.queries, a.beside.raw_localized, a.beside.localized, a.beside.gained, a.beside.astray) == (3, 2, 1, 1, 1)
    assert a.beside.error_ratio == pytest.approx(2) and a.beside.median_error == pytest.approx(0.02)
    assert a.beside.raw_median_error == pytest.approx(0.01)
    assert (b.false_queries, b.false_poses, b.beside.error_ratio) == (2, 1, pytest.approx(1.5))
    assert (both.beside.raw_localized, both.beside.localized, both.beside.median_error) == (3, 2, None)
    # In units of the scenes' raw medians: 0.02 / 0.02 and 1.5 / 1 from tiles, 0.01 / 0.02 and 1 from the raw map.
    assert both.beside.error_ratio == pytest.approx(1.25 / 0.75)
    assert (none.beside.localized, none.beside.error_ratio) == (0, None) and none.beside.low == 0.0
    validate("evaluate-tiles", {"rows": [row.as_json() for row in rows.values()], "forms": []})

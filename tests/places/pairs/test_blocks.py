"""Matching by blocks: the same matches as pair by pair, whoever computes them and however often a run is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from veil.device.doors import forms_in
from veil.engine import open_engine
from veil.errors import InputError, TaskError
from veil.features import Features
from veil.files.features import write_features
from veil.forms import Form
from veil.matching import Matches, match_pairs
from veil.matching.pairs import all_pairs
from veil.mechanisms.public import publish
from veil.places.pairs import blocks as blocks_module
from veil.places.pairs.blocks import KIND, matched_in_blocks
from veil.places.pairs.images import ImageFiles, form_digest
from veil.places.pairs.store import MatchStore, turned
from worlds.releases import taken


@pytest.fixture(scope="module")
def features(door: dict[str, Features]) -> dict[str, Features]:
    return {name: taken(item, np.arange(80)) for name, item in door.items()}


@pytest.fixture(scope="module")
def forms(features: dict[str, Features]) -> dict[str, Form]:
    return {name: publish(item) for name, item in features.items()}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks of four pairs, so that fifteen pairs are several blocks."""
    monkeypatch.setattr(blocks_module, "LEAST_PAIRS", 4)
    yield


def same(a: dict[tuple[str, str], Matches], b: dict[tuple[str, str], Matches]) -> bool:
    fields = ("indices", "distances", "ratios")
    return list(a) == list(b) and all(np.array_equal(getattr(a[p], f), getattr(b[p], f)) for p in a for f in fields)


def files_in(folder: Path) -> dict[str, bytes]:
    """All files but the names of the images, which are written before the first block."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "images.json"}


def ordered(forms: dict[str, Form]) -> dict[tuple[str, str], Matches]:
    """Matches pair by pair; the image whose digest is smaller stands on the left, as in a store, and is turned after."""
    by_pair = {}
    for a, b in all_pairs(sorted(forms)):
        is_turned = form_digest(forms[a]) > form_digest(forms[b])
        pair = (b, a) if is_turned else (a, b)
        matches = match_pairs(forms, [pair])[pair]
        by_pair[a, b] = turned(matches) if is_turned else matches
    return by_pair


def test_blocks_give_the_matches_of_single_pairs(forms: dict[str, Form], tmp_path: Path) -> None:
    """Second method: `match_pairs`, pair by pair. A second call computes nothing, and the plan is gone."""
    told: list[tuple[int, int]] = []
    pairs = all_pairs(sorted(forms))
    matches = matched_in_blocks(forms, pairs, MatchStore(tmp_path, KIND), progress=lambda *done: told.append(done))
    assert (
        same(matches, ordered(forms))
        and told[-1] == (15, 15)
        and [done for done, _ in told] == sorted(done for done, _ in told)
    )
    before = files_in(tmp_path)
    assert len(before) >= 4 and not any(name.endswith(".json") for name in before)
    again = matched_in_blocks(
        forms, pairs, MatchStore(tmp_path, KIND), progress=lambda *_: pytest.fail("nothing is left to do")
    )
    assert same(again, matches) and files_in(tmp_path) == before


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 6], ids=["one step", "two steps"])
def test_a_killed_run_ends_with_the_same_bytes(
    forms: dict[str, Form], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """Planted kills: the run ends before each of its blocks is written, in turn; the next run finishes it and computes no block
    again that was written. The same for a run that first matches some pairs, and then others that it chose by them."""
    pairs = all_pairs(sorted(forms))

    def run(folder: Path) -> None:
        for step in filter(None, [pairs[:first], pairs[first:]]):
            matched_in_blocks(forms, step, MatchStore(folder, KIND))

    run(tmp_path / "whole")
    whole = files_in(tmp_path / "whole")
    write = MatchStore.write
    for kill in range(len(whole)):
        folder, written = tmp_path / f"killed {kill}", 0

        class Killed(Exception):
            pass

        def counted(self, block, kill=kill):
            nonlocal written
            if written == kill:
                raise Killed
            written += 1
            return write(self, block)

        monkeypatch.setattr(MatchStore, "write", counted)
        with pytest.raises(Killed):
            run(folder)
        monkeypatch.setattr(MatchStore, "write", write)
        done = {name: data for name, data in files_in(folder).items() if name in whole}
        assert len(done) == kill and all(whole[name] == data for name, data in done.items())
        stamps = {name: (folder / name).stat().st_mtime_ns for name in done}
        run(folder)
        assert files_in(folder) == whole
        assert all((folder / name).stat().st_mtime_ns == stamp for name, stamp in stamps.items())


def test_an_added_image_costs_its_own_pairs_alone(
    forms: dict[str, Form], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bound: five images are matched, a sixth comes; five pairs are matched then, none between the old ones."""
    names = sorted(forms)
    matched_in_blocks(forms, all_pairs(names[:5]), MatchStore(tmp_path, KIND))
    asked: list[tuple[str, str]] = []

    def spied(given, pairs, **options):
        asked.extend(pairs)
        return match_pairs(given, pairs, **options)

    monkeypatch.setattr(blocks_module, "match_pairs", spied)
    matches = matched_in_blocks(forms, all_pairs(names), MatchStore(tmp_path, KIND))
    assert len(asked) == 5 and all(names[5] in pair for pair in asked) and same(matches, ordered(forms))


@pytest.mark.slow
def test_an_engine_writes_the_same_bytes(features: dict[str, Features], forms: dict[str, Form], tmp_path: Path) -> None:
    """Second method: blocks from files by an engine of two processes, and in this process, byte for byte."""
    write_features(tmp_path / "f.h5", sorted(features.items()))
    pairs = all_pairs(sorted(forms))
    here = matched_in_blocks(forms, pairs, MatchStore(tmp_path / "here", KIND))
    files = ImageFiles(of={name: (str(tmp_path / "f.h5"), name) for name in forms}, read=forms_in)
    with open_engine("local", workers=2) as engine:
        there = matched_in_blocks(forms, pairs, MatchStore(tmp_path / "there", KIND), engine=engine, files=files)
    assert same(here, there) and files_in(tmp_path / "here") == files_in(tmp_path / "there")


def test_files_that_changed_are_noticed(features: dict[str, Features], forms: dict[str, Form], tmp_path: Path) -> None:
    """Planted: the file holds other features than the run was given, or lacks an image; nothing is written."""
    names = sorted(forms)
    pairs = all_pairs(names)[:3]
    files = ImageFiles(of={name: (str(tmp_path / "f.h5"), name) for name in forms}, read=forms_in)
    for stored in (
        {name: taken(features[name], np.arange(70)) for name in names},
        {name: features[name] for name in names[:1]},
    ):
        write_features(tmp_path / "f.h5", sorted(stored.items()))
        with open_engine("local", workers=1) as engine, pytest.raises((InputError, TaskError), match=r"changed|lacks"):
            matched_in_blocks(forms, pairs, MatchStore(tmp_path / "blocks", KIND), engine=engine, files=files)
    assert not list((tmp_path / "blocks").glob("*.matches"))


def test_pairs_of_unknown_images_are_refused(forms: dict[str, Form], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nobody"):
        matched_in_blocks(forms, [("nobody", "other")], MatchStore(tmp_path, KIND))

"""Contributions that would poison a map are listed and stay out of it where they contradict it; honest ones are left alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from veil.cli import main
from veil.device.device import Device
from veil.errors import InputError, RangeError
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.photographs.examples import lund_door
from veil.files.photographs.pictures import read_picture
from veil.geometry.rigid import rotation_angle_deg
from veil.places.built_maps import BuiltMap
from veil.places.held_map import Map
from veil.places.maps import NoMap
from veil.places.pairs.images import LoadedImage
from veil.places.uploads import loaded
from veil.server.jobs.entering import OWNERS, built_by_any, usable_images
from veil.server.jobs.queue import Job
from veil.server.maps.contributions import Contribution
from veil.server.maps.policy import MapPolicy
from veil.server.maps.suspects import TooMuch, reasons_of, suspects_of, suspects_record, weight_of
from veil.server.runner import Runner
from veil.server.service import Service
from veil.server.settings import ServerSettings
from veil.wire import decode
from worlds import poison
from worlds.releases import taken
from worlds.schemas import validate
from worlds.servers import messages_of, with_pool, words_of

HELD_OUT = 2


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Messages of nine bundled photographs; the last `HELD_OUT` are queries."""
    with lund_door() as example:
        options = SiftOptions(max_features=600)
        images = {
            name: extract_sift(read_picture(example.folder / name, camera=example.camera), options)
            for name in sorted(example.poses)[:9]
        }
    return list(messages_of(images, Device(tmp_path_factory.mktemp("device")), most=400).values())


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = with_pool(Service(tmp_path_factory.mktemp("server") / "store", ServerSettings(workers=1, map_workers=2)))
    yield service
    service.close()


@pytest.fixture(scope="module")
def work(service: Service) -> Iterator[Callable[[], Job]]:
    """Do all jobs that wait, by one process for the whole module; returns the last one as it ended."""
    runner = Runner(service)

    def done() -> Job:
        last = None
        while (job := runner.work_once()) is not None:
            last = service.jobs.get(job.id)
        assert last is not None and last.state == "done", last
        return last

    yield done
    runner._process.kill()


def test_one_message_of_another_kind_keeps_no_others_waiting(door: dict[str, Features], tmp_path: Path) -> None:
    """Without a map the kind of most counts, and of as many the one that came first; broken twin: all of them or none."""
    device = Device(tmp_path)
    few = [taken(features, np.arange(60)) for features in list(door.values())[:2]]
    images = {name: loaded(decode(message)) for name, message in messages_of({"a": few[0], "b": few[1]}, device).items()}
    images["words"] = loaded(decode(words_of(few[0], device)))
    usable, left_out = usable_images(images, None, order=["words", "a", "b"])
    assert set(usable) == {"a", "b"} and "the map takes subspaces" in left_out["words"]
    pair = {name: images[name] for name in ("a", "words")}
    assert set(usable_images(pair, None, order=["words", "a"])[0]) == {"words"}
    assert set(usable_images(pair, None, order=["a", "words"])[0]) == {"a"}
    assert usable_images({}, None, order=[]) == ({}, {})


def test_what_one_token_gives_keeps_no_others_from_the_map(unchecked: None) -> None:
    """Planted: a builder whose map is refused as soon as a poison is in it. The others' enter, one token after another.

    Names stand for images, and sets of names for maps. Broken twin: entering all together or nothing, as the builder says of
    all.
    """

    def image(name: str) -> Any:
        return name

    def built(names: set[str], further: tuple[Map, ...] = ()) -> BuiltMap:
        return BuiltMap(map=cast(Map, frozenset(names)), check=None, left_out={}, further=further)

    asked: list[tuple[list[str], str]] = []

    def build(images: Mapping[str, LoadedImage], base: Map | None, folder: str) -> BuiltMap | NoMap:
        asked.append((sorted(images), folder))
        if any("poison" in name for name in images):
            return NoMap("it cannot be trusted", {})
        if base is None and len(images) < 2:
            raise InputError("too few")
        return built({*cast(frozenset[str], base or frozenset()), *images})

    owners = {"a1": "a", "poison 1": "evil", "b1": "b", "b2": "b", "c1": "c", "poison 2": "evil"}
    images = {name: image(name) for name in owners}
    outcome = built_by_any(images, owners, None, build)
    assert isinstance(outcome, BuiltMap) and outcome.map == {"b1", "b2", "c1"}
    assert outcome.left_out == dict.fromkeys(["poison 1", "poison 2"], "it cannot be trusted")
    assert [names for names, _ in asked[1:]] == [["a1"], ["poison 1", "poison 2"], ["b1", "b2"], ["c1"]]
    assert len({folder for _, folder in asked}) == len(asked), "no run takes another's unfinished work for its own"
    asked.clear()
    assert isinstance(built_by_any({name: images[name] for name in ("a1", "c1")}, owners, None, build), BuiltMap)
    assert len(asked) == 1, "where all together give a map, nothing else is tried"
    alone = built_by_any({"poison 1": images["poison 1"], "poison 2": images["poison 2"]}, owners, None, build)
    assert isinstance(alone, NoMap) and len(asked) == 2 and not alone.left_out
    asked.clear()
    sure = built_by_any(images, owners, None, build, doubted=["poison 1", "poison 2", "c1"])
    assert isinstance(sure, BuiltMap) and sure.map == {"a1", "b1", "b2", "c1"}
    assert [names for names, _ in asked] == [
        ["a1", "b1", "b2"],
        ["c1", "poison 1", "poison 2"],
        ["poison 1", "poison 2"],
        ["c1"],
    ]
    assert len({folder for _, folder in asked}) == len(asked) and set(sure.left_out) == {"poison 1", "poison 2"}
    refused = built_by_any({"poison 1": images["poison 1"]}, owners, cast(Map, frozenset({"a1"})), build)
    assert isinstance(refused, NoMap) and set(refused.left_out) == {"poison 1"}, "what a map refuses is left out of it"
    asked.clear()
    crowd = {f"poison {number}": f"e{number}" for number in range(50)}
    assert isinstance(built_by_any({name: image(name) for name in crowd}, crowd, None, build), NoMap)
    assert len(asked) == 1 + OWNERS


def test_reasons_need_a_map(poisoned_item: Contribution) -> None:
    """The first contributions give no reasons against themselves, and without other contributions there is no weight."""
    assert reasons_of(poisoned_item, images=2) == ()
    assert [reason.kind for reason in reasons_of(poisoned_item, images=3)] == ["left out"]
    assert weight_of(poisoned_item, [poisoned_item]) is None
    other = replace(poisoned_item, id="c2", token="t2", state="mapped")
    assert weight_of(poisoned_item, [poisoned_item, other]) is None, "no job has looked at it yet"
    seen = replace(poisoned_item, facts={"evidence": {"observed": 10, "confirmed": 4}})
    assert weight_of(seen, [seen, other]) == pytest.approx(0.4)


@pytest.fixture
def poisoned_item() -> Contribution:
    return Contribution(
        id="c1",
        map_id="m",
        token="t1",
        digest="",
        size_bytes=1,
        facts={},
        state="left out",
        reason="too weak",
        received=0.0,
        expires=None,
    )


class Poisoned:
    """A map of honest contributions of three tokens, and what a fourth one gave to it."""

    def __init__(
        self, service: Service, work: Callable[[], Job], messages: list[bytes], elsewhere: bytes, words: bytes
    ) -> None:
        self.service, self.queries = service, messages[-HELD_OUT:]
        honest = [service.tokens.make(name, ["contribute", "localize"])[0] for name in ("a", "b", "c")]
        self.asking, self.evil = honest[0], service.tokens.make("evil", ["contribute"])[0]
        self.map_id = service.records.make("door", MapPolicy()).id
        given = messages[:-HELD_OUT]
        self.honest = [service.contribute(honest[n % 3], self.map_id, item)[0].id for n, item in enumerate(given)]
        work()
        self.before, self.poses_before = self.items(), self.poses()
        self.poisons = {
            "elsewhere": elsewhere,
            "words": words,
            "misplaced": poison.misplaced(given[3]),
            "copy": poison.changed_a_little(given[4], 1),
            "copy of the copy": poison.changed_a_little(given[4], 2),
            "rough copy": poison.changed_a_little(given[5], 3, by=0.1),
            "one place": poison.on_one_place(given[2]),
            "a line": poison.on_a_line(given[1]),
            "one descriptor": poison.of_one_descriptor(given[1]),
        }
        self.ids = {service.contribute(self.evil, self.map_id, item)[0].id: name for name, item in self.poisons.items()}
        self.job = work()

    def items(self) -> list[Contribution]:
        return self.service.records.contributions(self.map_id)

    def poses(self) -> list[dict[str, Any]]:
        answers = [self.service.localize(self.asking, self.map_id, query) for query in self.queries]
        assert all(answer["status"] == "localized" for answer in answers), answers
        return answers


@pytest.fixture(scope="module")
def poisoned(
    service: Service,
    work: Callable[[], Job],
    messages: list[bytes],
    elsewhere: Features,
    tmp_path_factory: pytest.TempPathFactory,
) -> Poisoned:
    device = Device(tmp_path_factory.mktemp("other"))
    other = messages_of({"elsewhere": elsewhere}, device)["elsewhere"]
    return Poisoned(service, work, messages, other, words_of(elsewhere, device))


def reasons(items: list[Contribution]) -> dict[str, set[str]]:
    return {each.contribution.id: {reason.kind for reason in each.reasons} for each in suspects_of(items)}


@pytest.mark.slow
def test_honest_contributions_are_not_suspect(poisoned: Poisoned) -> None:
    """No false alarm on the bundled photographs, before and after others gave poison; others confirm what each one sees."""
    assert reasons(poisoned.before) == {}
    assert {item.state for item in poisoned.before} == {"mapped"}
    after = [item for item in poisoned.items() if item.id in poisoned.honest]
    assert not set(reasons(poisoned.items())) & set(poisoned.honest)
    for item in after:
        weight = weight_of(item, poisoned.items())
        assert item.state == "mapped" and weight is not None and weight > 0.9


@pytest.mark.slow
def test_every_poison_is_listed_and_what_contradicts_stays_out(poisoned: Poisoned) -> None:
    """Planted truth: what each forgery is. Broken twin: a list by geometry alone, which takes copies for the best of all."""
    listed = {poisoned.ids[name]: kinds for name, kinds in reasons(poisoned.items()).items()}
    states = {poisoned.ids[item.id]: item for item in poisoned.items() if item.id in poisoned.ids}
    assert listed == {
        "elsewhere": {"left out"},
        "words": {"left out"},
        "misplaced": {"left out", "unexplained", "repeats others"},
        "copy": {"repeats others"},
        "copy of the copy": {"repeats own", "repeats others"},
        "rough copy": {"repeats others"},
        "one place": {"left out", "degenerate"},
        "a line": {"left out", "degenerate"},
        "one descriptor": {"left out", "degenerate"},
    }
    assert {name for name, item in states.items() if item.state == "mapped"} == {"copy", "copy of the copy", "rough copy"}
    for name in ("copy", "copy of the copy", "rough copy"):
        weight = weight_of(states[name], poisoned.items())
        assert weight is not None and weight > 0.9
    assert "the map takes subspaces" in states["words"].reason
    assert len(poisoned.items()) == len(poisoned.honest) + len(poisoned.poisons), "nothing is deleted"


@pytest.mark.slow
def test_poison_does_not_move_honest_poses(poisoned: Poisoned) -> None:
    """Oracle: the poses of the same queries before. Cameras that were in the map stay where they are to rounding."""
    assert poisoned.job.result["moved"] < 1e-6
    for before, after in zip(poisoned.poses_before, poisoned.poses(), strict=True):
        a, b = (np.array(answer["cam_from_world"]["rotation"]) for answer in (before, after))
        assert rotation_angle_deg(a @ b.T) < 0.1
        # A focal length known to 1 % leaves as much of the distance to the door open, and wrong matches fall anywhere in it.
        assert np.linalg.norm(np.subtract(before["camera_center"], after["camera_center"])) < 0.1
        assert before["map_version"] < after["map_version"]


@pytest.mark.slow
def test_a_map_made_anew_with_poison_in_it_is_the_same(poisoned: Poisoned, service: Service, work: Callable[[], Job]) -> None:
    """The mapper sees everything at once; oracle: the turn between two queries, which no frame of the map changes."""

    def turn(answers: list[dict[str, Any]]) -> float:
        a, b = (np.array(answer["cam_from_world"]["rotation"]) for answer in answers)
        return rotation_angle_deg(a @ b.T)

    service.queue(poisoned.map_id, "rebuild", poisoned.asking.id)
    work()
    states = {item.id: item.state for item in poisoned.items()}
    assert all(states[name] == "mapped" for name in poisoned.honest)
    assert not set(reasons(poisoned.items())) & set(poisoned.honest)
    assert set(reasons(poisoned.items())) == set(poisoned.ids)
    assert abs(turn(poisoned.poses()) - turn(poisoned.poses_before)) < 0.1


@pytest.mark.slow
def test_two_tokens_that_agree_on_a_mirrored_place_do_not_get_it_into_the_map(
    service: Service, work: Callable[[], Job], messages: list[bytes]
) -> None:
    """Colluding: as many forged views as honest ones, that agree with each other and share every descriptor with the map.

    They stay out of the map and are listed, also where it is made anew, twice: a map that took all of them at once has no pose
    for honest queries any more (broken twin: a rebuild that doubts nobody).
    """
    honest, first, second = (
        service.tokens.make(name, ["contribute", "localize"])[0] for name in ("honest", "evil 1", "evil 2")
    )
    map_id = service.records.make("mirrored", MapPolicy()).id
    for message in messages[:5]:
        service.contribute(honest, map_id, message)
    work()
    forged = [poison.mirrored(poison.changed_a_little(message, 4, by=0.1)) for message in messages[:5]]
    ids = {service.contribute(second if n % 2 else first, map_id, item)[0].id for n, item in enumerate(forged)}
    for kind in ("update", "rebuild", "rebuild"):
        if kind == "rebuild":
            service.queue(map_id, "rebuild", honest.id)
        work()
        items = service.records.contributions(map_id)
        assert {item.id for item in items if item.state == "mapped"} == {item.id for item in items} - ids, kind
        assert set(reasons(items)) == ids and all("unexplained" in reasons(items)[name] for name in ids), kind
        assert service.localize(honest, map_id, messages[5])["status"] == "localized"
    service.delete_map(service.tokens.make("admin", ["admin"])[0], map_id)


@pytest.mark.slow
def test_the_list_is_for_administrators(poisoned: Poisoned, service: Service, tmp_path: Path) -> None:
    """The record follows its schema, and nothing of it is told to whoever contributed: it would help to forge better."""
    validate("serve-suspects", suspects_record(service.map_record(poisoned.map_id), poisoned.items()))
    shown = tmp_path / "suspects.json"
    assert main(["serve", "suspects", str(service.folder), "--map", "door", "--json", str(shown)]) == 0
    record = json.loads(shown.read_text())
    assert {item["contribution"] for item in record["suspects"]} == set(poisoned.ids)
    shares = {share["token"]: share for share in record["tokens"]}
    assert shares[poisoned.evil.id]["suspects"] == len(poisoned.ids) == shares[poisoned.evil.id]["contributions"]
    assert sum(share["share"] for share in shares.values()) == pytest.approx(1.0)
    for item in poisoned.items():
        assert not {"evidence", "weight", "reasons", "token"} & set(item.as_json())
    assert main(["serve", "suspects", str(service.folder), "--map", "window"]) == 1


@pytest.mark.slow
def test_a_token_that_floods_is_refused(service: Service, messages: list[bytes]) -> None:
    """By number and by share; the same message again is no further one, and deletion makes room."""
    flood, other = (service.tokens.make(name, ["contribute"])[0] for name in ("flood", "other"))
    few = service.records.make("few", MapPolicy(max_contributions_of_token=2)).id
    first = service.contribute(flood, few, messages[0])[0]
    service.contribute(flood, few, messages[1])
    with pytest.raises(TooMuch, match="takes 2 of one token"):
        service.contribute(flood, few, messages[2])
    assert service.contribute(flood, few, messages[0])[0].id == first.id
    service.contribute(other, few, messages[2])
    assert service.delete(flood, first.id)[0] is not None
    service.contribute(flood, few, messages[3])
    half = service.records.make("half", MapPolicy(max_share_of_token=0.2)).id
    for message in messages[:2]:
        service.contribute(flood, half, message)
    with pytest.raises(TooMuch, match=r"share of 0\.2"):
        service.contribute(flood, half, messages[2])
    assert len(service.records.contributions(half)) == 2
    for wrong in ({"max_share_of_token": 0.0}, {"max_share_of_token": float("nan")}, {"max_contributions_of_token": -1}):
        with pytest.raises(RangeError):
            MapPolicy(**wrong)
    admin = service.tokens.make("admin", ["admin"])[0]
    for name in (few, half):
        service.delete_map(admin, name)

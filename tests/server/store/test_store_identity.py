"""A store's parts belong together, or nothing is deleted: foreign, empty, restored and rolled-back databases."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from veil.errors import FileFormatError, StorageTrouble
from veil.files.service.blobs import OWNER, FolderBlobs
from veil.server.deletion import sweep
from veil.server.service import Service
from veil.server.settings import ServerSettings
from veil.server.storage import open_parts
from veil.server.store import blob_use
from veil.server.store.blob_use import FEW, MARKED_S, blobs_in, loosen, sweep_loose
from veil.server.store.database import SqliteDatabase
from veil.server.store.identity import adopt
from worlds.buckets import Buckets
from worlds.postgres import Postgres
from worlds.stores import StoreWorld, drop_note, fill, forgets, held

STARTS, MANY = 10, 40


@pytest.fixture(params=["folder", pytest.param("shared", marks=pytest.mark.slow)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreWorld]:
    """A store in a folder, and one in PostgreSQL and a bucket."""
    shared = request.param == "shared"
    settings = request.getfixturevalue("shared_settings") if shared else ServerSettings()
    yield StoreWorld(settings=replace(settings, workers=1, map_workers=1), folder=tmp_path / "store")


def test_a_database_that_was_away_or_is_anothers_deletes_nothing(tmp_path: Path) -> None:
    """The file of the database is moved away, or another store's lies there: each start is refused, and says what to do."""
    world, other = (StoreWorld(settings=ServerSettings(), folder=tmp_path / name) for name in ("store", "other"))
    service = world.start()
    names = fill(service, MANY)
    service.close()
    stranger = other.start()
    fill(stranger, 3)
    stranger.close()
    right = world.folder / "veil.sqlite"
    away = right.rename(tmp_path / "away.sqlite")
    told = world.swept()
    assert len(told) == STARTS and all("is missing beside the blobs" in text for text in told)
    assert all("adopt the server's store" in text for text in told)
    assert not right.exists(), "an empty one there would be in the way of the right one"
    shutil.copyfile(other.folder / "veil.sqlite", right)
    told = world.swept()
    assert len(told) == STARTS and all("belong to the store" in text for text in told)
    away.replace(right)
    assert world.swept() == [] and held(world) == names


@pytest.mark.slow
def test_an_empty_or_foreign_database_of_several_servers_deletes_nothing(
    shared_settings: ServerSettings, buckets: Buckets, postgres: Postgres, tmp_path: Path
) -> None:
    """A second server on one bucket, with a new database or that of another store, is refused, and the first one serves on."""
    one = StoreWorld(settings=shared_settings, folder=tmp_path / "one")
    service = one.start()
    names = fill(service, MANY)
    own = StoreWorld(settings=replace(shared_settings, database=""), folder=tmp_path / "own")
    told = own.swept()
    assert len(told) == STARTS and all("is missing beside the blobs of a store" in text for text in told)
    empty = StoreWorld(settings=replace(shared_settings, database=postgres.url()), folder=tmp_path / "empty")
    told = empty.swept()
    assert len(told) == STARTS and all("belong to the store" in text for text in told)
    elsewhere = replace(shared_settings, database=postgres.url(), blobs=buckets.make("veil-elsewhere"))
    stranger = Service(tmp_path / "stranger", elsewhere)
    fill(stranger, 3, start=500)
    stranger.close()
    crossed = StoreWorld(settings=replace(elsewhere, blobs=shared_settings.blobs), folder=tmp_path / "crossed")
    told = crossed.swept()
    assert len(told) == STARTS and all("belong to the store" in text for text in told)
    foreign = StoreWorld(settings=replace(shared_settings, blobs=buckets.make("veil-foreign")), folder=tmp_path / "foreign")
    told = foreign.swept(2)
    assert len(told) == 2 and all("(s3://veil-foreign, 0 of them) say no store" in text for text in told), told
    sweep(service)
    assert set(service.records.blobs.names()) == names
    service.close()


def test_blobs_without_an_id_beside_a_database_with_one_are_refused(world: StoreWorld) -> None:
    """Their note is gone: they may be a copy of another store's."""
    service = world.start()
    names = fill(service, 3)
    drop_note(service.records.blobs)
    with pytest.raises(FileFormatError, match="say no store"):
        sweep(service)
    service.close()
    told = world.swept()
    assert len(told) == STARTS and all("3 of them) say no store" in text for text in told) and held(world) == names


def test_a_database_that_is_older_than_its_blobs_deletes_nothing_until_it_is_adopted(
    world: StoreWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the right id, and misses the last contributions. Broken twin: a sweep that deletes what nothing names."""
    service = world.start()
    old = fill(service, 5)
    new = fill(service, MANY, start=5)
    forgets(service, new)
    for _ in range(3):
        sweep(service)  # of the server that is running
    assert service.unnamed == sorted(new)
    service.close()
    assert world.swept() == [] and held(world) == old | new
    parts = open_parts(world.folder, world.settings)
    assert adopt(parts, write=False).unnamed == tuple(sorted(new)) and held(world) == old | new
    adoption = adopt(parts, write=True)
    assert (adoption.named, adoption.missing, adoption.unnamed) == (5, 0, tuple(sorted(new)))
    parts.database.close()
    assert world.swept(2) == [] and held(world) == old | new, "a day is left to find the right database"
    service = world.start()
    monkeypatch.setitem(MARKED_S, "adopted", 0.0)
    assert sweep_loose(service.database, service.records.blobs) == MANY and set(service.records.blobs.names()) == old
    again = fill(service, MANY, start=100)
    forgets(service, again)
    with service.database.transaction() as rows:  # the twin
        for name in set(service.records.blobs.names()) - blobs_in(rows):
            service.records.blobs.delete(name)
    assert set(service.records.blobs.names()) == old, "by absence all of them are lost"
    service.close()


def test_a_database_file_that_is_put_back_under_a_running_server_deletes_nothing(tmp_path: Path) -> None:
    """The file itself, as a backup of the machine restores it: copied when it was young, put back later."""
    service = Service(tmp_path / "store")
    old = fill(service, 5)
    service.database.clear_log()
    shutil.copyfile(tmp_path / "store" / "veil.sqlite", tmp_path / "young.sqlite")
    new = fill(service, MANY, start=5)
    service.database.close()
    for path in (tmp_path / "store").glob("veil.sqlite*"):
        path.unlink()
    shutil.copyfile(tmp_path / "young.sqlite", tmp_path / "store" / "veil.sqlite")
    for _ in range(STARTS):
        sweep(service)
    assert set(service.records.blobs.names()) == old | new and service.unnamed == sorted(new)
    service.close()


def test_a_sweep_takes_what_deletion_left_and_in_its_time_what_was_never_named(
    world: StoreWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep deletes blobs that left at once. It marks new ones and deletes them if no row names them for the stated time."""
    service = world.start()
    names = fill(service, 6)
    gone, kept = sorted(names)[:2], sorted(names)[2:]
    with service.database.transaction() as transaction:  # a kill before the blobs were deleted
        for name in gone:
            transaction.run("DELETE FROM contributions WHERE digest = :name", name=name)
        loosen(transaction, gone, "left")
    sweep(service)
    assert sorted(service.records.blobs.names()) == kept
    never = service.records.keep(b"never named")
    blobs = service.records.blobs
    now = 1e9
    assert sweep_loose(service.database, blobs, now=now) == 0
    assert sweep_loose(service.database, blobs, now=now + MARKED_S["came"] - 1) == 0 and blobs.has(never)
    assert sweep_loose(service.database, blobs, now=now - 1e6) == 0, "the clock was set back"
    assert sweep_loose(service.database, blobs, now=now - 1e6 + MARKED_S["came"]) == 1 and not blobs.has(never)
    assert sorted(blobs.names()) == kept
    service.close()


def test_a_sweep_that_would_take_a_large_share_stops_and_says_so(tmp_path: Path) -> None:
    """Half of all blobs came and nothing names them: more than kills leave. What was deleted goes all the same."""
    service = Service(tmp_path / "store")
    names = fill(service, FEW + 2)
    came = {service.records.keep(b"never %d" % number) for number in range(FEW + 1)}
    (left,) = fill(service, 1, start=1000)
    forgets(service, {left})
    with service.database.transaction() as transaction:
        loosen(transaction, [left], "left")
    sweep_loose(service.database, service.records.blobs, now=1e9)
    with pytest.raises(StorageTrouble, match=f"{FEW + 1} of {2 * FEW + 3} blobs"):
        sweep_loose(service.database, service.records.blobs, now=2e9)
    assert set(service.records.blobs.names()) == names | came
    service.close()


@pytest.mark.slow
def test_two_stores_in_one_bucket_do_not_see_each_other(
    shared_settings: ServerSettings, buckets: Buckets, tmp_path: Path
) -> None:
    """One at its root, one below a prefix that looks like the root's folders, one deeper."""
    address = buckets.make("veil-two")
    places = [address, f"{address}/ab", f"{address}/ab/cd"]
    services = []
    for number, blobs in enumerate(places):
        settings = replace(shared_settings, database="", blobs=blobs)
        services.append(Service(tmp_path / str(number), settings))
    names = [fill(service, 4, start=10 * number) for number, service in enumerate(services)]
    for service in services:
        sweep(service)
        assert service.unnamed == []
    assert [set(service.records.blobs.names()) for service in services] == names
    assert len({service.store for service in services}) == 3
    for service in services:
        service.close()


def test_a_database_that_has_served_and_says_no_store_deletes_nothing(tmp_path: Path) -> None:
    """Its id is gone, and with it whose blobs lie there. An adoption gives it a new one."""
    world = StoreWorld(settings=ServerSettings(), folder=tmp_path / "store")
    service = world.start()
    names = fill(service, 4)
    service.close()

    parts = open_parts(world.folder, world.settings)
    with parts.database.transaction() as transaction:
        transaction.run("DELETE FROM facts WHERE name = 'store'")
    parts.database.close()
    told = world.swept(2)
    assert len(told) == 2 and all("has served, and says no store" in text for text in told) and held(world) == names
    parts = open_parts(world.folder, world.settings)
    assert adopt(parts, write=True).unnamed == ()
    parts.database.close()
    assert world.swept(2) == [] and held(world) == names
    new = StoreWorld(settings=ServerSettings(), folder=tmp_path / "new")
    strange = FolderBlobs(new.folder / "blobs").put(b"of another store")
    SqliteDatabase(new.folder / "veil.sqlite").close()
    told = new.swept(2)
    assert len(told) == 2 and all("none of which the database names" in text for text in told)
    assert held(new) == {strange}
    assert blob_use.SHARE < 1


def test_a_folder_and_tiles_of_another_store_are_refused(tmp_path: Path) -> None:
    for part in ("storage.json", "tiles/store.json"):
        one, other = (StoreWorld(settings=ServerSettings(), folder=tmp_path / name / part[:5]) for name in ("one", "other"))
        for world in (one, other):
            world.start().close()
        shutil.copyfile(other.folder / part, one.folder / part)
        assert len(one.swept(1)) == 1, part


@pytest.mark.slow
def test_a_first_start_that_was_killed_is_given_again(shared_settings: ServerSettings, tmp_path: Path) -> None:
    """It made its database, and did not note yet that its blobs are in a bucket. With a folder of blobs it is another store."""
    settings = replace(shared_settings, database="")
    for name, has_blobs in (("killed", False), ("other", True)):
        SqliteDatabase(tmp_path / name / "veil.sqlite").close()
        if has_blobs:
            (tmp_path / name / "blobs").mkdir()
            with pytest.raises(FileFormatError, match="was used with blobs = folder"):
                Service(tmp_path / name, settings)
        else:
            Service(tmp_path / name, settings).close()


def test_every_part_of_a_new_store_carries_its_id(world: StoreWorld) -> None:
    service = world.start()
    store = service.store
    assert store.encode() in (world.folder / "storage.json").read_bytes()
    assert store.encode() in (world.folder / "tiles" / OWNER).read_bytes()
    assert service.records.blobs.owner() == store
    service.require_whole()
    service.close()
    again = world.start()
    assert again.store == store
    again.close()


def test_a_start_that_was_killed_before_it_wrote_the_id_beside_the_blobs_goes_on(
    world: StoreWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database has the id, and the blobs not yet."""
    parts = open_parts(world.folder, world.settings)
    kind = type(parts.blobs)
    parts.database.close()

    def killed(*given: object, **more: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kind, "claim", killed)
        with pytest.raises(KeyboardInterrupt):
            world.start()
    service = world.start()
    with service.database.transaction() as transaction:
        assert [row["name"] for row in transaction.all("SELECT name FROM facts ORDER BY name")] == ["store", "version"]
    assert service.records.blobs.owner() == service.store
    service.close()

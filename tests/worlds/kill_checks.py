"""Checks of a store after a kill: what it must hold and must not hold, for every ending."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from veil.files.maps.folders import model_folders
from veil.files.maps.format import read_map
from veil.server.store.blob_use import blobs_in
from worlds.kill_servers import Place, Server
from worlds.planted_bytes import digest, held_in, of_maps, of_matches, places_of, told_apart
from worlds.servers import NOTES

# Names of files that a store without contributions and maps may have.
DATABASE = {"veil.sqlite", "veil.sqlite-shm", "veil.sqlite-wal"}


def needles(server: Server) -> dict[str, list[bytes]]:
    """By id of each contribution, bytes of it in matches and in the present maps."""
    windows_by_name: dict[str, list[bytes]] = {}
    service = server.service
    for record in service.records.all():
        parts = [of_matches(service.folder / "matches" / record.id)]
        folder = service.version_folder(record) if record.files else None
        parts += [] if folder is None else [of_maps(folder)]
        for part in parts:
            for name, listed in part.items():
                windows_by_name.setdefault(name, []).extend(listed)
    return windows_by_name


def receipts_of(server: Server) -> list[dict[str, Any]]:
    """The contents of all receipts."""
    with server.service.database.transaction() as transaction:
        return [json.loads(row["content"]) for row in transaction.all("SELECT content FROM receipts ORDER BY number")]


def deleted_and_there(server: Server, planted: dict[str, list[bytes]], *, backups: bool) -> list[str]:
    """Parts of deleted contributions, those with receipts, that the store still holds. `backups`: backups count too."""
    present = {item.digest for item in server.service.records.contributions()}
    apart, faults = told_apart(list(server.place.messages)), []
    held = list(held_in(server.place.root, server.place.objects))
    for receipt in receipts_of(server):
        sha, name = receipt["message_sha256"], receipt["contribution"]
        if sha in present:
            continue
        number = next(i for i, message in enumerate(server.place.messages) if digest(message) == sha)
        files = [(path, data) for path, data in held if backups or not path.startswith("backups/one.backup")]
        faults += [
            f"left: bytes of a deleted message in {path}" for path in places_of(apart[number] + planted.get(name, []), files)
        ]
        named = [path for path in places_of([name.encode()], held) if "veil.sqlite" not in path and "one.backup" not in path]
        faults += [f"left: the name of a deleted contribution in {path}" for path in named]
    return faults


def not_found(server: Server, planted: dict[str, list[bytes]]) -> list[str]:
    """Parts of present contributions that the search misses: it would miss them after a deletion, too."""
    held, faults = list(held_in(server.place.root, server.place.objects)), []
    apart = told_apart(list(server.place.messages))
    for item in server.service.records.contributions():
        number = server.number_of(item.id)
        parts = [*apart[number], *(planted.get(item.id, []) if item.state == "mapped" else [])]
        missed = sum(not any(part in data for _, data in held) for part in parts)
        if missed or (item.state == "mapped" and not planted.get(item.id)):
            faults.append(f"wrong: the search misses {missed} of {len(parts)} planted parts of message {number}")
    return faults


def what_is_wrong(server: Server, attempted: Sequence[str], *, again: bool) -> list[str]:
    """Records that differ from the answers to clients: lost, twice, or a job that did not end. `again`: all was sent again."""
    service, faults = server.service, []
    items = service.records.contributions()
    times = Counter(item.digest for item in items)
    receipts = Counter(item["contribution"] for item in receipts_of(server))
    acknowledged = {item["step"] for item in server.known()}
    dropped = "drop" in acknowledged or ("drop" in attempted and not service.records.all())
    for number, message in enumerate(server.place.messages):
        given, taken = f"contribute {number}", f"delete {number}"
        count = times[digest(message)]
        if count > 1:
            faults.append(f"twice: message {number} is there {count} times")
        if taken in acknowledged and count:
            faults.append(f"left: message {number} was deleted and is listed")
        gone = taken in attempted or dropped
        if given in acknowledged and not gone and not count:
            faults.append(f"lost: message {number} was acknowledged")
        name = server.id_of(number)
        if name and gone and not count and receipts[name] != 1:
            faults.append(f"{'twice' if receipts[name] else 'lost'}: message {number} is gone with {receipts[name]} receipts")
        if given in attempted and given not in acknowledged and again:
            faults.append(f"lost: message {number} was sent again and is not acknowledged")
    faults += [f"twice: {count} receipts of one contribution" for count in receipts.values() if count > 1]
    for item in items:
        if service.records.blobs.get(item.digest) not in server.place.messages:
            faults.append("lost: a message holds something else")
    return faults + wrong_jobs(server) + wrong_maps(server)


def wrong_jobs(server: Server) -> list[str]:
    """Jobs that did not end, or failed."""
    with server.service.database.transaction() as transaction:
        rows = transaction.all("SELECT kind, state, result FROM jobs")
    return [
        f"wrong: a job {row['kind']} is {row['state']}: {row['result']}"
        for row in rows
        if row["state"] not in ("done", "cancelled")
    ]


def wrong_maps(server: Server) -> list[str]:
    """Maps that hold an image twice, or another one than their contributions say."""
    faults, service = [], server.service
    for record in service.records.all():
        if not record.files or record.name == "imported":
            continue
        folder = service.version_folder(record)
        assert folder is not None
        names = [name for model in model_folders(folder) for name in read_map(model).images]
        mapped = {item.id for item in service.records.contributions(record.id) if item.state == "mapped"}
        if len(set(names)) != len(names) or set(names) != mapped:
            faults.append(
                f"wrong: the map holds {len(names)} images, {len(mapped)} are mapped, {len(mapped - set(names))} are not there"
            )
    return faults


def more_than_named(server: Server) -> list[str]:
    """Files of a store that nothing names, when an hour has gone by."""
    service = server.service
    with service.database.transaction() as transaction:
        named = blobs_in(transaction)
    versions = {f"cache/{record.id}/{record.version}" for record in service.records.all()}
    matches = {f"matches/{record.id}" for record in service.records.all()}
    faults = [f"left: a blob that nothing names ({name[:8]})" for name in service.records.blobs.names() if name not in named]
    for path in sorted(item for item in service.folder.rglob("*") if item.is_file()):
        name = path.relative_to(service.folder).as_posix()
        kept = name in NOTES | DATABASE or name.startswith(("tiles/", *versions, *matches)) or path.name in named
        if not kept or path.name.endswith(".part"):
            faults.append(f"left: {name}")
    for path in [*(server.place.root / "backups").glob(".*"), *server.place.root.glob(".*")]:
        faults.append(f"left: {path.relative_to(server.place.root)}")
    return faults


def finished(place: Place, attempted: Sequence[str], ending: str, of: str) -> list[str]:
    """Faults of a store after a kill in the steps `attempted`, and after everything in it was deleted."""
    kept = json.loads(place.beside("planted").read_text())
    planted = {name: [bytes.fromhex(part) for part in parts] for name, parts in kept.items()}
    source = Server(place)
    if of != "store" and not (place.root / of).exists():
        source.run(attempted)
    server = source if of == "store" else Server(place, of=of)
    if server is not source:  # it holds the same
        source.do_drop()
        source.do_follow()
    faults = [f"{told}, before it goes on" for told in deleted_and_there(server, planted, backups=False)]
    if ending == "one deleted" and (name := next((item.id for item in server.service.records.contributions()), "")):
        attempted = [*attempted, f"delete {server.number_of(name)}"]
        server.service.delete(server.token, name)
        faults += [f"{told}, when one was deleted" for told in deleted_and_there(server, planted, backups=False)]
    server.starts()
    again = ending == "sent again"
    if again:
        left = Counter(attempted) - Counter(item["step"] for item in server.known())
        server.run(sorted(left.elements(), key=list(attempted).index))
        server.starts()
    if ending == "an hour later":
        server.an_hour_later()
        faults += more_than_named(server)
    faults += what_is_wrong(server, attempted, again=again)
    present = needles(server)
    for name, parts in present.items():
        planted.setdefault(name, []).extend(parts)
    faults += deleted_and_there(server, planted, backups=True) + not_found(server, present)
    for each in {id(server): server, id(source): source}.values():
        each.do_drop()
        each.do_follow()
    faults += [f"{told}, after its map was deleted" for told in nothing_left(server, planted)]
    server.an_hour_later()
    return faults + [f"{told}, after all was deleted" for told in more_than_named(server)]


def nothing_left(server: Server, planted: dict[str, list[bytes]]) -> list[str]:
    """Where bytes are of what was ever sent, when every map was deleted."""
    held = list(held_in(server.place.root, server.place.objects))
    wanted = [part for parts in (*told_apart(list(server.place.messages)), *planted.values()) for part in parts]
    counts = Counter(item["contribution"] for item in receipts_of(server)).values()
    faults = [f"twice: {count} receipts of one contribution" for count in counts if count > 1]
    return faults + [f"left: bytes in {path}" for path in places_of(wanted, held)]

"""What a transaction costs with each database, and what finding the nearest maps costs: is a spatial index worth its while?

    python lab/benchmarks/server_storage.py [--maps 1000 10000] [--seconds 3]

Transactions are those that admit a request (`Tokens.admit`), by one and by eight threads. PostgreSQL is one that the benchmark
starts, without fsync, reached by a socket; it is left out where it is not installed. For the maps: the time of `maps_for`
(which maps a GeoPose request is compared with) and the part of it that sorts them by distance, which an index would save.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from veil.geometry.earth import ecef_of_geodetic
from veil.server.access.tokens import Quota, Tokens
from veil.server.maps.policy import MapPolicy
from veil.server.maps.records import MapRecord
from veil.server.routes.geopose import GeoPoseQuery, maps_for
from veil.server.service import Service
from veil.server.store.database import Database, SqliteDatabase
from worlds import postgres


def main() -> int:
    """Print a line for each measurement."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--maps", type=int, nargs="+", default=[1000, 10000])
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        transactions("SQLite", SqliteDatabase(Path(folder) / "veil.sqlite"), arguments.seconds)
    if reason := postgres.missing():
        print(f"PostgreSQL: {reason}")
    else:
        from veil.server.store.postgres import PostgresDatabase

        with postgres.running_postgres() as server:
            transactions("PostgreSQL", PostgresDatabase(server.url()), arguments.seconds)
    for number in arguments.maps:
        nearest(number)
    return 0


def transactions(name: str, database: Database, seconds: float) -> None:
    """Print how long it takes to admit a request."""
    tokens = Tokens(database)
    _, secret = tokens.make("benchmark", ["localize"], quota=Quota(requests_per_minute=1 << 50, bytes_per_day=1 << 50))
    for number in (1, 8):
        done = [0] * number
        end = time.perf_counter() + seconds

        def admit(which: int, done: list[int] = done, end: float = end) -> None:
            while time.perf_counter() < end:
                tokens.admit(secret, "localize")
                done[which] += 1

        threads = [threading.Thread(target=admit, args=(which,)) for which in range(number)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(f"{name}, {number} threads: {sum(done) / seconds:.0f} transactions a second", flush=True)
    database.close()


def nearest(number: int) -> None:
    """Print how long it takes to find the maps nearest to a place, and to sort them."""
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        service = Service(Path(folder) / "store")
        token = service.tokens.make("benchmark", ["localize"])[0]
        with service.database.transaction() as statements:
            for index in range(number):
                origin = {"lat": float(rng.uniform(-80, 80)), "lon": float(rng.uniform(-180, 180)), "h": 0.0}
                statements.run(
                    "INSERT INTO maps (id, name, policy, created, version, files, facts) "
                    "VALUES (:id, :id, :policy, :created, 1, '{}', :facts)",
                    id=f"m{index}",
                    policy=json.dumps(MapPolicy().as_json()),
                    created=float(index),
                    facts=json.dumps({"place": {"origin": origin}}),
                )
        query: Any = object.__new__(GeoPoseQuery)
        object.__setattr__(query, "near", (55.7, 13.2))
        begun = time.perf_counter()
        records = service.records.all()
        read = time.perf_counter() - begun
        begun = time.perf_counter()
        maps_for(service, token, None, query)
        whole = time.perf_counter() - begun
        print(
            f"{number} maps: {1e3 * whole:.1f} ms for the nearest, {1e3 * read:.1f} ms to read all; "
            f"{1e3 * sort(records):.1f} ms to sort them, which an index would save",
            flush=True,
        )
        service.close()


def sort(records: list[MapRecord]) -> float:
    """Seconds that sorting maps by distance takes."""
    here = ecef_of_geodetic(np.array([55.7, 13.2, 0.0]))
    begun = time.perf_counter()
    origins = [record.facts["place"]["origin"] for record in records]
    places = ecef_of_geodetic(np.array([[at["lat"], at["lon"], 0.0] for at in origins]))
    np.argsort(np.linalg.norm(places - here, axis=1))
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())

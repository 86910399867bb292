"""Functions, files and rooms of veil that one call passes, by trace.

    python lab/benchmarks/walks.py [--json]

The calls: `wire.decode`, `localize`, `veil localize`, the server's query, `map_images` and `run_audit`, each on the bundled
photographs; all but the server's once without the trace before, so that compiled and cached things are there. A function is a
`def` of the package; a room is a folder or a single file right below the package.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import httpx

import veil
from veil.files.photographs.examples import HELD_OUT, lund_door

PACKAGE = Path(veil.__file__).parent


@contextlib.contextmanager
def tracing() -> Iterator[set[CodeType]]:
    """The functions of the package that run inside, in this thread and in those that are started inside."""
    codes: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)) and not code.co_name.startswith("<"):
            codes.add(code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield codes
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def counted(codes: set[CodeType]) -> dict[str, int]:
    """Number of functions, files and rooms of some functions."""
    files = {Path(code.co_filename).relative_to(PACKAGE) for code in codes}
    return {"functions": len(codes), "files": len(files), "rooms": len({path.parts[0] for path in files})}


class Here:
    """Runs a server's task in this process, where it can be traced, in place of the pool of worker processes."""

    def call(self, task: Callable[..., object], *arguments: object, deadline_s: float, whose: str = "") -> object:
        return task(*arguments, lambda step, done, total: None)


async def served(folder: Path) -> set[CodeType]:
    """The functions of a query over HTTP: first with the pool of processes, then with the work of these done here."""
    from veil.server.app import create_app
    from veil.server.service import Service

    service = Service(folder / "store")
    record = service.import_map("door", folder / "map")
    _, secret = service.tokens.make("walks", ["admin"])
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/vnd.veil.message"}
    message = (folder / "query.veil").read_bytes()
    answered = service.localize

    def localize(*arguments: Any, **named: Any) -> Any:
        """Answer in a thread that may have been started before the trace."""
        sys.setprofile(threading.getprofile())
        return answered(*arguments, **named)

    service.localize = localize  # type: ignore[method-assign]
    app = create_app(service)
    app_lifespan = app.router.lifespan_context(app)
    async with app_lifespan, httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://walks") as client:
        processes = service.open_pool()
        with tracing() as codes:
            for pool in (processes, Here()):
                service.pool = pool  # type: ignore[assignment]
                answer = await client.post(f"/v1/maps/{record.id}/localize", content=message, headers=headers)
        service.pool = processes
    assert answer.status_code == 200 and answer.json()["status"] == "localized", answer.text
    return codes


def calls(folder: Path) -> dict[str, Callable[[], object]]:
    """The calls to be walked, with all that they need made beforehand."""
    options = veil.SiftOptions(max_features=600)
    with lund_door() as place:
        taken = {name: veil.read_picture(place.folder / name, camera=place.camera) for name in sorted(place.poses)}
    features = {name: veil.extract(picture, options=options) for name, picture in taken.items()}
    mapped = {name: each for name, each in features.items() if name not in HELD_OUT}
    query = features[HELD_OUT[1]]
    message = veil.Device(folder / "home").release(query, name="query", purpose="map").message
    (folder / "query.veil").write_bytes(message)
    protected = {
        name: veil.decode(veil.Device(folder / "home").release(each, purpose="map").message) for name, each in mapped.items()
    }
    built = veil.map_images(protected, options=veil.MappingOptions(workers=1))
    assert isinstance(built, veil.BuiltMap)
    built.map.write(folder / "map")
    where = veil.Map.read(folder / "map")
    audit = veil.AuditOptions(features=8, seconds=20, threads=1)

    def command() -> None:
        main = __import__("veil.cli", fromlist=["main"]).main
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            assert main(["localize", str(folder / "map"), str(folder / "query.veil")]) == 0

    return {
        "wire.decode": lambda: veil.decode(message),
        "localize": lambda: veil.localize(veil.decode(message), where),
        "veil localize": command,
        "map_images": lambda: veil.map_images(protected, options=veil.MappingOptions(workers=1)),
        "run_audit": lambda: veil.run_audit({"query": veil.decode(message)}, originals={"query": query}, options=audit),
    }


def walks() -> dict[str, dict[str, int]]:
    """Numbers of functions, files and rooms that each call passes."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        made = {}
        for name, call in calls(folder).items():
            call()
            with tracing() as codes:
                call()
            made[name] = counted(codes)
        made["the server's query"] = counted(asyncio.run(served(folder)))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    made = walks()
    if parser.parse_args().json:
        print(json.dumps(made))
        return
    print(f"{'call':20} functions files rooms")
    for name, numbers in made.items():
        print(f"{name:20} {numbers['functions']:9} {numbers['files']:5} {numbers['rooms']:5}")


if __name__ == "__main__":
    main()

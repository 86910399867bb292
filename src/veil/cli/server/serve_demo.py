"""`veil serve --demo`: maps of bundled photographs, and what is printed for a second shell and a browser."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from veil.cli.common import Bar, progress, say
from veil.files.atomic import replacing

DEMO, DEMO_TOKEN = "demo", "demo.token"
PUBLIC, PAGE_TOKEN = "demo in words", "demo-page.token"


def add_demo(arguments: argparse.Namespace, service: Any, url: str) -> None:
    """Give a server the demo's maps where they are missing; print the command for a second shell, and the page's address."""
    from veil.files.examples import HELD_OUT, lund_door

    path = arguments.folder / DEMO_TOKEN
    if all(item.name != DEMO for item in service.records.all()):
        _contribute(service, path)
    secret = _page_secret(service, arguments.folder / PAGE_TOKEN)
    with lund_door() as example:
        camera = ",".join([example.camera.model, *(f"{value:g}" for value in example.camera.params)])
        photograph = example.folder / HELD_OUT[0]
    say(arguments, "in a second shell, once the map is made (ten seconds):")
    say(arguments, f"  veil client localize {photograph} --map demo --camera {camera} --server {url} --token-file {path}")
    say(arguments, "in a browser, where photographs are protected before they leave:")
    say(arguments, f"  {url}/#token={secret}")


def _contribute(service: Any, path: Path) -> None:
    """Queue the demo's map of hardened messages, and keep the secret of a token for it in a file."""
    from veil.pipelines.demo import demo_messages
    from veil.server.policy import MapPolicy

    record = service.records.make(DEMO, MapPolicy())
    with tempfile.TemporaryDirectory(prefix="veil-serve-demo-") as home:
        messages = demo_messages(Path(home), steps=Bar)
    owner, secret = service.tokens.make(DEMO, ["localize", "contribute"], maps=[record.id])
    _keep(secret, path)
    for message in progress(messages.values(), "contributing"):
        service.contribute(owner, record.id, message)


def _page_secret(service: Any, path: Path) -> str:
    """Secret of a token that may localize on the public demo map alone; map and token are made where they are missing."""
    from veil.files.atomic import read_bytes
    from veil.pipelines.demo import write_demo_map
    from veil.server.policy import MapPolicy

    found = next((item for item in service.records.all() if item.name == PUBLIC), None)
    if found is not None and path.is_file():
        return read_bytes(path).decode().strip()
    if found is None:
        with tempfile.TemporaryDirectory(prefix="veil-serve-demo-") as folder:
            write_demo_map(Path(folder) / "map", steps=Bar)
            found = service.import_map(PUBLIC, Path(folder) / "map", MapPolicy(forms=("words",)))
    _, secret = service.tokens.make(PUBLIC, ["localize"], maps=[found.id])
    _keep(secret, path)
    return secret


def _keep(secret: str, path: Path) -> None:
    with replacing(path, private=True) as temporary:
        temporary.write_text(secret + "\n")

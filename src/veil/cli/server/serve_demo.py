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
DEMO_NAMES = (DEMO, PUBLIC)  # of maps, and of the tokens for them


def add_demo(arguments: argparse.Namespace, service: Any) -> None:
    """Give a server the demo's maps and their tokens where they are missing."""
    path, page_path = arguments.folder / DEMO_TOKEN, arguments.folder / PAGE_TOKEN
    missing = {*DEMO_NAMES} - {item.name for item in service.records.all()}
    if missing:
        from veil.demo import demo_features

        features = demo_features(steps=Bar)
        if DEMO in missing:
            _contribute(service, features, path)
        if PUBLIC in missing:
            _import_public(service, features)
    if PUBLIC in missing or not page_path.is_file():
        public = next(item for item in service.records.all() if item.name == PUBLIC)
        # The address of the page holds this token: it may ask the public map, and nothing else.
        _keep(service.tokens.make(PUBLIC, ["localize"], maps=[public.id])[1], page_path)


def tell_demo(arguments: argparse.Namespace, service: Any, url: str) -> None:
    """Print the command for a second shell, and the page's address."""
    from veil.files.atomic import read_bytes
    from veil.files.photographs.examples import HELD_OUT, lund_door

    path, page_path = arguments.folder / DEMO_TOKEN, arguments.folder / PAGE_TOKEN
    with lund_door() as example:
        camera = ",".join([example.camera.model, *(f"{value:g}" for value in example.camera.params)])
        photograph = example.folder / HELD_OUT[0]
    made = any(item.name == DEMO and item.files for item in service.records.all())
    wait = "" if made else ", once its map is made, which takes half a minute of a processor"
    say(arguments, f"in a second shell{wait}:")
    say(arguments, f"  veil client localize {photograph} --map demo --camera {camera} --server {url} --token-file {path}")
    say(arguments, "in a browser, where photographs are protected before they leave:")
    say(arguments, f"  {url}/#token={read_bytes(page_path).decode().strip()}")


def _contribute(service: Any, features: Any, path: Path) -> None:
    """Queue the demo's map of hardened messages, and keep the secret of a token for it in a file."""
    from veil.demo import demo_messages
    from veil.server.maps.policy import MapPolicy

    record = service.records.make(DEMO, MapPolicy())
    with tempfile.TemporaryDirectory(prefix="veil-serve-demo-") as home:
        messages = demo_messages(features, Path(home), steps=Bar)
    owner, secret = service.tokens.make(DEMO, ["localize", "contribute"], maps=[record.id])
    _keep(secret, path)
    for message in progress(messages.values(), "contributing"):
        service.contribute(owner, record.id, message)


def _import_public(service: Any, features: Any) -> None:
    """Take a public map of the same photographs into the server, for queries in words."""
    from veil.demo import rehearse_words, write_demo_map
    from veil.server.maps.policy import MapPolicy

    with tempfile.TemporaryDirectory(prefix="veil-serve-demo-") as folder:
        made = write_demo_map(features, Path(folder) / "map", steps=Bar)
        with Bar("compiling") as bar:
            rehearse_words(next(iter(features.values())), made)
            bar(1, 1)
        service.import_map(PUBLIC, Path(folder) / "map", MapPolicy(forms=("words",)))


def _keep(secret: str, path: Path) -> None:
    with replacing(path, private=True) as temporary:
        temporary.write_text(secret + "\n")

"""`veil serve`: the service of a folder, its demo, its tokens, and maps that are taken into it."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from veil.cli.common import Arguments, Bar, at_least, progress, quiet_colmap, report, say, say_table, tell, write_json
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.errors import InputError
from veil.files.atomic import replacing, write_text
from veil.report.tables import Name, Table, Words
from veil.wire.names import chosen

FIRST = "administrator"
DEMO, DEMO_TOKEN = "demo", "demo.token"
PUBLIC, PAGE_TOKEN = "demo in words", "demo-page.token"
# The public map in private tiles; the page makes this name of the map's.
PUBLIC_TILES = "demo-in-words"
DEMO_NAMES = (DEMO, PUBLIC)  # of maps, and of the tokens for them
EXAMPLES = """\
  veil serve store/                              listens on http://127.0.0.1:8700; the first start prints the admin token
  veil serve store/ --demo                       with maps of bundled photographs and a page for browsers
  veil serve store/ --add-map lobby=map/         with a map that `veil map` wrote
  veil serve store/ --config serve.toml          settings of a file; VEIL_SERVE_PORT=9000 and so on go before it
"""
PLACE_EXAMPLES = """\
  veil map align map/ positions.csv -o place.json
  veil serve place store/ place.json --map lobby
"""
TOKEN_EXAMPLES = """\
  veil serve token store/ --name "robot 7" --scopes localize contribute
  veil serve token store/ --name "my phone" --maps lobby -o phone.token     the secret in a file, for you alone
  veil serve token store/ --list
  veil serve token store/ --revoke t0123456789abcdef     the id that --list shows
"""


@dataclass(frozen=True, kw_only=True)
class AskedSettings(Record):
    """The settings of a server."""

    config: Path | None = option("settings (docs/reference/service.md#settings)", metavar="TOML")


@dataclass(frozen=True, kw_only=True)
class Serve(AskedSettings):
    """Serve maps: clients with tokens contribute messages, which jobs enter into maps, and have queries localized.
    Raw features and images are refused by their type; queries are kept nowhere; deletions give receipts
    (docs/reference/service.md). One folder holds everything; several servers may share it. It listens without
    encryption: beyond this machine, put it behind a server that speaks TLS. Needs `pip install 'veil[serve]'`.
    """

    folder: Path = positional("folder of the server; made where it is missing")
    host: str | None = option("address to listen at (default 127.0.0.1)")
    port: int | None = option("port to listen at; 0: one that is free (default 8700)", parse=at_least(0))
    workers: int | None = option("processes that localize (default 2)", parse=at_least(1))
    add_map: tuple[str, ...] = option("take maps in, unless the server has one of this name", default=(), metavar="NAME=FOLDER")
    demo: bool = option(
        "give the server maps of nine bundled photographs and a page for browsers, and print its address and the command "
        "that localizes another photograph",
        default=False,
    )


@dataclass(frozen=True, kw_only=True)
class ServePlace(AskedSettings):
    """Give a map of a server the place that `veil map align` found; its answers then hold a GeoPose."""

    folder: Path = positional("folder of the server")
    place: Path = positional("a file that `veil map align` wrote")
    map: str = option("id of a map, or its name", required=True, metavar="MAP")


@dataclass(frozen=True, kw_only=True)
class ServeToken(AskedSettings):
    """Make a token, whose secret is told this once, list all, or revoke one. Files that hold the secret, that of --json
    too, are for you alone (mode 0600).
    """

    folder: Path = positional("folder of the server")
    name: str | None = option("name of the new token: whom it is for")
    scopes: tuple[Literal["localize", "contribute", "admin"], ...] = option(
        "what the token allows (default localize)", default=("localize",)
    )
    maps: tuple[str, ...] | None = option("maps that the token may use, by id or name (default: all)", metavar="MAP")
    requests_per_minute: int = option(
        "requests in a minute that the token allows (default %(default)s)", default=600, parse=at_least(0)
    )
    bytes_per_day: int = option(
        "bytes in a day that the token allows (default %(default)s)", default=10 << 30, parse=at_least(0)
    )
    output: Path | None = option("write the secret here, and do not print it", short="-o", metavar="FILE")
    list: bool = option("print all tokens", default=False)
    revoke: str | None = option("revoke the token of this id: it allows nothing any more", metavar="TOKEN")
    json: Path | None = json_file()


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil serve`, `veil serve place` and `veil serve token` to the parser's commands."""
    add_record_command(commands, "serve", "the service of a folder, over HTTP", EXAMPLES, Serve, _serve)
    summary = "say where on Earth a server's map is"
    add_record_command(commands, "serve place", summary, PLACE_EXAMPLES, ServePlace, _place)
    summary = "make, list or revoke tokens of a server"
    add_record_command(commands, "serve token", summary, TOKEN_EXAMPLES, ServeToken, _token)


def service_of(arguments: Arguments) -> Any:
    """The service of a folder, with the storage that --config and the environment name."""
    settings = settings_of(arguments)
    from veil.server.service import Service

    return Service(arguments.folder, settings)


def settings_of(arguments: AskedSettings) -> Any:
    """The settings of --config, the environment and the command line. Raises InputError where the extra is not installed."""
    require_extra()
    from veil.server.settings import read_settings

    given = {"VEIL_SERVE_DEMO_PAGE": "true"} if getattr(arguments, "demo", False) else {}
    given |= {f"VEIL_SERVE_{name.upper()}": str(value) for name, value in vars(arguments).items() if _is_setting(name, value)}
    return read_settings(arguments.config, {**os.environ, **given})


def require_extra() -> None:
    """Raise InputError where the extra is not installed."""
    try:
        import fastapi
        import prometheus_client
        import uvicorn
    except ImportError as error:
        raise InputError(f"the service needs {error.name}; run `pip install 'veil[serve]'`") from None
    assert fastapi and prometheus_client and uvicorn


def _serve(arguments: Serve) -> int:
    quiet_colmap()
    asked, settings = _maps_asked(arguments), settings_of(arguments)
    from veil.server.app import create_app
    from veil.server.http.listening import address_of, bound, serve
    from veil.server.runner import Runner
    from veil.server.service import Service

    with bound(settings.host, settings.port) as sockets:
        service = Service(arguments.folder, settings)
        _take_in(arguments, service, asked)
        if arguments.demo:
            _add_demo(arguments, service)
        url = address_of(settings.host, sockets[0].getsockname()[1])
        logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.WARNING)
        logging.getLogger("veil.server").setLevel(logging.INFO)
        serve(create_app(service, Runner(service)), settings, sockets, lambda: _tell_listening(arguments, service, url))
    return 0


def _tell_listening(arguments: Serve, service: Any, url: str) -> None:
    """Print where the server listens, after the first token; nothing of it before somebody can use it."""
    if all(item.name in DEMO_NAMES for item in service.tokens.all()):
        _, secret = service.tokens.make(FIRST, ["admin"])
        say(arguments, f"admin token, told this once: {secret}")
    if arguments.demo:
        _tell_demo(arguments, service, url)
    say(arguments, f"veil serves {arguments.folder} at {url} (Ctrl-C ends it)")
    sys.stdout.flush()  # somebody may wait for that line in a file


def _is_setting(name: str, value: object) -> bool:
    return name in ("host", "port", "workers") and value is not None


def _maps_asked(arguments: Serve) -> list[tuple[str, Path]]:
    """Names and folders of --add-map. Raises InputError for what is no NAME=FOLDER."""
    maps = []
    for text in arguments.add_map:
        name, _, folder = text.partition("=")
        if not name or not folder:
            raise InputError(f"--add-map takes NAME=FOLDER, got {text!r}")
        maps.append((name, Path(folder)))
    return maps


def _take_in(arguments: Serve, service: Any, asked: Sequence[tuple[str, Path]]) -> None:
    """Take the maps of --add-map into the server."""
    names = {item.name for item in service.records.all()}
    for name, folder in asked:
        if name in names:
            tell(f"veil: the server has a map {name!r} already; {folder} was not read")
            continue
        record = service.import_map(name, folder)
        say(arguments, f"map {name!r}: {record.id}")


def _add_demo(arguments: Serve, service: Any) -> None:
    """Give a server the demo's maps and their tokens where they are missing."""
    path, page_path = arguments.folder / DEMO_TOKEN, arguments.folder / PAGE_TOKEN
    missing = {*DEMO_NAMES} - {item.name for item in service.records.all()}
    if missing:
        from veil.demo import demo_features

        features = demo_features(steps=Bar)
        if DEMO in missing:
            _contribute(service, features, path)
        if PUBLIC in missing:
            _import_public(arguments.folder, service, features)
    if PUBLIC in missing or not page_path.is_file():
        public = next(item for item in service.records.all() if item.name == PUBLIC)
        # The address of the page holds this token: it may ask the public map, and nothing else.
        _keep(service.tokens.make(PUBLIC, ["localize"], maps=[public.id])[1], page_path)


def _tell_demo(arguments: Serve, service: Any, url: str) -> None:
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
    at = f"--server {url} --token-file {path}"
    say(arguments, f"  veil client localize {photograph} --map demo --obfuscate --camera {camera} {at}")
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


def _import_public(store: Path, service: Any, features: Any) -> None:
    """Take a public map of the same photographs into the server, for queries in words, and its tiles."""
    from veil.demo import rehearse_words, write_demo_map
    from veil.files.service.served_tiles import add_served
    from veil.places.tiles import cut_map
    from veil.server.maps.policy import MapPolicy
    from veil.server.store.identity import TILES

    with tempfile.TemporaryDirectory(prefix="veil-serve-demo-") as folder:
        made = write_demo_map(features, Path(folder) / "map", steps=Bar)
        with Bar("compiling") as bar:
            rehearse_words(next(iter(features.values())), made)
            bar(1, 1)
        service.import_map(PUBLIC, Path(folder) / "map", MapPolicy(forms=("words",)))
        cut_map(Path(folder) / "map", Path(folder) / "tiles")
        add_served(store / TILES, PUBLIC_TILES, Path(folder) / "tiles", localizations=None)


def _keep(secret: str, path: Path) -> None:
    with replacing(path, private=True) as temporary:
        temporary.write_text(secret + "\n")


def _place(arguments: ServePlace) -> int:
    from veil.files.maps.places import read_place
    from veil.geometry.georeference import place_facts

    place = read_place(arguments.place)
    service = service_of(arguments)
    try:
        record = chosen(service.records.all(), arguments.map)
        service.set_place(record.id, place_facts(place))
        say(arguments, f"map {record.name!r} is at {place.frame.latitude_deg:.6f}, {place.frame.longitude_deg:.6f}")
        return 0
    finally:
        service.close()


def _token(arguments: ServeToken) -> int:
    if sum([arguments.list, arguments.revoke is not None, arguments.name is not None]) != 1:
        raise InputError("give --name for a new token, --list, or --revoke TOKEN")
    if arguments.output is not None and arguments.name is None:
        raise InputError("--output is for the secret of a new token; give --name")
    service = service_of(arguments)
    try:
        if arguments.list:
            tokens = service.tokens.all()
            write_json(arguments.json, {"tokens": [item.as_json() for item in tokens]})
            rows = [(t.id, t.name, "revoked" if t.revoked is not None else ", ".join(t.scopes)) for t in tokens]
            say_table(arguments, token_table(rows))
            return 0
        if arguments.revoke is not None:
            revoked = service.tokens.revoke(arguments.revoke)
            if revoked is None:
                raise InputError(f"there is no token {arguments.revoke!r}; `veil serve token FOLDER --list` shows all")
            write_json(arguments.json, revoked.as_json())
            say(arguments, f"revoked {revoked.id}, {revoked.name}")
            return 0
        _make_token(arguments, service)
        return 0
    finally:
        service.close()


def _make_token(arguments: ServeToken, service: Any) -> None:
    """Make a token, and tell its secret once."""
    from veil.server.access.tokens import Quota
    from veil.server.maps.records import map_ids

    quota = Quota(requests_per_minute=arguments.requests_per_minute, bytes_per_day=arguments.bytes_per_day)
    maps = None if arguments.maps is None else map_ids(service.records.all(), arguments.maps)
    made, secret = service.tokens.make(arguments.name, arguments.scopes, maps=maps, quota=quota)
    write_json(arguments.json, {**made.as_json(), "secret": secret}, private=True)
    say(arguments, f"{made.id}  {made.name}: {', '.join(made.scopes)}")
    if arguments.output is None:
        say(arguments, f"told this once: {secret}")
    else:
        write_text(arguments.output, secret + "\n", private=True)
        report(arguments, arguments.output, "its secret")


def token_table(rows: Sequence[tuple[str, str, str]]) -> Table:
    """The table of tokens: the id, whom each is for, and what it allows."""
    return Table(columns=[Name("token", least=99), Name("name"), Words("allows")], rows=rows)

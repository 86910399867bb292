"""`veil serve`: the service of a folder, its tokens, and maps that are taken into it."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from veil.cli.common import (
    add_command,
    add_json,
    at_least,
    quiet_colmap,
    report,
    say,
    say_table,
    tell,
    write_json,
)
from veil.cli.server.serve_demo import DEMO_NAMES, add_demo, tell_demo
from veil.errors import InputError
from veil.files.atomic import write_text
from veil.report.tables import Name, Table, Words
from veil.wire.names import chosen

SCOPES = ("localize", "contribute", "admin")
FIRST = "administrator"
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


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil serve` and `veil serve token` to the parser's commands."""
    parser = add_command(
        commands,
        "serve",
        "the service of a folder, over HTTP",
        "Serve maps: clients with tokens contribute messages, which jobs enter into maps, and have queries localized.\n"
        "Raw features and images are refused by their type; queries are kept nowhere; deletions give receipts\n"
        "(docs/reference/service.md). One folder holds everything; several servers may share it. It listens without\n"
        "encryption: beyond this machine, put it behind a server that speaks TLS. Needs `pip install 'veil[serve]'`.",
        EXAMPLES,
    )
    parser.add_argument("folder", type=Path, help="folder of the server; made where it is missing")
    add_config(parser)
    parser.add_argument("--host", help="address to listen at (default 127.0.0.1)")
    parser.add_argument("--port", type=at_least(0), help="port to listen at; 0: one that is free (default 8700)")
    parser.add_argument("--workers", type=at_least(1), help="processes that localize (default 2)")
    parser.add_argument(
        "--add-map", nargs="+", default=[], metavar="NAME=FOLDER", help="take maps in, unless the server has one of this name"
    )
    parser.add_argument(
        "--demo",
        action="store_true",
        help="give the server maps of nine bundled photographs and a page for browsers, and print its address and the command "
        "that localizes another photograph",
    )
    parser.set_defaults(run=_serve)

    parser = add_command(
        commands,
        "serve place",
        "say where on Earth a server's map is",
        "Give a map of a server the place that `veil map align` found; its answers then hold a GeoPose.",
        PLACE_EXAMPLES,
    )
    parser.add_argument("folder", type=Path, help="folder of the server")
    parser.add_argument("place", type=Path, help="a file that `veil map align` wrote")
    parser.add_argument("--map", required=True, metavar="MAP", help="id of a map, or its name")
    add_config(parser)
    parser.set_defaults(run=_place)

    parser = add_command(
        commands,
        "serve token",
        "make, list or revoke tokens of a server",
        "Make a token, whose secret is told this once, list all, or revoke one. Files that hold the secret, that of --json\n"
        "too, are for you alone (mode 0600).",
        TOKEN_EXAMPLES,
    )
    parser.add_argument("folder", type=Path, help="folder of the server")
    parser.add_argument("--name", help="name of the new token: whom it is for")
    parser.add_argument(
        "--scopes", nargs="+", choices=SCOPES, default=["localize"], help="what the token allows (default localize)"
    )
    parser.add_argument("--maps", nargs="+", metavar="MAP", help="maps that the token may use, by id or name (default: all)")
    parser.add_argument(
        "--requests-per-minute",
        type=at_least(0),
        default=600,
        help="requests in a minute that the token allows (default %(default)s)",
    )
    parser.add_argument(
        "--bytes-per-day", type=at_least(0), default=10 << 30, help="bytes in a day that the token allows (default %(default)s)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the secret here, and do not print it")
    parser.add_argument("--list", action="store_true", help="print all tokens")
    add_config(parser)
    parser.add_argument("--revoke", metavar="TOKEN", help="revoke the token of this id: it allows nothing any more")
    add_json(parser)
    parser.set_defaults(run=_token)


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add the option that names a file of settings."""
    parser.add_argument("--config", type=Path, metavar="TOML", help="settings (docs/reference/service.md#settings)")


def service_of(arguments: argparse.Namespace) -> Any:
    """The service of a folder, with the storage that --config and the environment name."""
    settings = settings_of(arguments)
    from veil.server.service import Service

    return Service(arguments.folder, settings)


def settings_of(arguments: argparse.Namespace) -> Any:
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


def _serve(arguments: argparse.Namespace) -> int:
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
            add_demo(arguments, service)
        url = address_of(settings.host, sockets[0].getsockname()[1])
        logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.WARNING)
        logging.getLogger("veil.server").setLevel(logging.INFO)
        serve(create_app(service, Runner(service)), settings, sockets, lambda: _tell_listening(arguments, service, url))
    return 0


def _tell_listening(arguments: argparse.Namespace, service: Any, url: str) -> None:
    """Print where the server listens, after the first token; nothing of it before somebody can use it."""
    if all(item.name in DEMO_NAMES for item in service.tokens.all()):
        _, secret = service.tokens.make(FIRST, ["admin"])
        say(arguments, f"admin token, told this once: {secret}")
    if arguments.demo:
        tell_demo(arguments, service, url)
    say(arguments, f"veil serves {arguments.folder} at {url} (Ctrl-C ends it)")
    sys.stdout.flush()  # somebody may wait for that line in a file


def _is_setting(name: str, value: object) -> bool:
    return name in ("host", "port", "workers") and value is not None


def _maps_asked(arguments: argparse.Namespace) -> list[tuple[str, Path]]:
    """Names and folders of --add-map. Raises InputError for what is no NAME=FOLDER."""
    found = []
    for text in arguments.add_map:
        name, _, folder = text.partition("=")
        if not name or not folder:
            raise InputError(f"--add-map takes NAME=FOLDER, got {text!r}")
        found.append((name, Path(folder)))
    return found


def _take_in(arguments: argparse.Namespace, service: Any, asked: Sequence[tuple[str, Path]]) -> None:
    """Take the maps of --add-map into the server."""
    names = {item.name for item in service.records.all()}
    for name, folder in asked:
        if name in names:
            tell(f"veil: the server has a map {name!r} already; {folder} was not read")
            continue
        record = service.import_map(name, folder)
        say(arguments, f"map {name!r}: {record.id}")


def _place(arguments: argparse.Namespace) -> int:
    from veil.files.maps.places import place_facts, read_place

    found = read_place(arguments.place)
    service = service_of(arguments)
    try:
        record = chosen(service.records.all(), arguments.map)
        service.set_place(record.id, place_facts(found))
        say(arguments, f"map {record.name!r} is at {found.frame.latitude_deg:.6f}, {found.frame.longitude_deg:.6f}")
        return 0
    finally:
        service.close()


def _token(arguments: argparse.Namespace) -> int:
    if sum([arguments.list, arguments.revoke is not None, arguments.name is not None]) != 1:
        raise InputError("give --name for a new token, --list, or --revoke TOKEN")
    if arguments.output is not None and arguments.name is None:
        raise InputError("--output is for the secret of a new token; give --name")
    service = service_of(arguments)
    try:
        if arguments.list:
            found = service.tokens.all()
            write_json(arguments.json, {"tokens": [item.as_json() for item in found]})
            rows = [(t.id, t.name, "revoked" if t.revoked is not None else ", ".join(t.scopes)) for t in found]
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


def _make_token(arguments: argparse.Namespace, service: Any) -> None:
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

"""`veil serve tiles`: tiles that a server gives to devices without learning which."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from veil.cli.common import at_least, say, write_json
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.errors import InputError
from veil.files.service.served_tiles import add_served, remove_served, served_names, versions_of
from veil.json_records.values import Digest

EXAMPLES = """\
  veil tiles cut map/ -o tiles/
  veil serve tiles store/ tiles/ --name station          devices then fetch from http://HOST:8700/v1/tiles/station
  veil serve tiles other-store/ tiles/ --name station    the same tiles at a second server, which others run
  veil serve tiles store/ tiles/ --name station --hintless    devices of one server need no hint
  veil serve tiles store/ --list
  veil localize tiles:https://a.example.org/v1/tiles/station,https://b.example.org/v1/tiles/station photo.jpg
"""
# As many localizations of one device with one version the exit by one server is laid out for.
LOCALIZATIONS = 100
FOLDER = "tiles"


@dataclass(frozen=True, kw_only=True)
class ServeTiles(Record):
    """Copy tiles that `veil tiles cut` wrote into a server's folder, while it runs or not. Devices need no token for them:
    whoever reaches the server can read them, and they can be inverted into pictures of the place. The exit by two
    servers hides which tiles are fetched while one of them keeps to itself what it receives: run the second apart,
    under others. The exit by one server needs a matrix as large as the tiles, and a hint, which are computed here.
    """

    folder: Path = positional("folder of the server")
    tiles: Path | None = positional("a folder that `veil tiles cut` wrote", optional=True)
    name: str | None = option("name by which devices ask for the tiles")
    list: bool = option("print the tiles that the server has", default=False)
    remove: str | None = option("serve the tiles of this name no more", metavar="NAME")
    localizations: int = option(
        "localizations of a device, for which fetching from one server is laid out (default %(default)s; "
        "see `veil tiles plan`). 0 computes no matrix and no hint: devices fetch from two servers, or all tiles at once",
        default=LOCALIZATIONS,
        parse=at_least(0),
        metavar="N",
    )
    hintless: bool = option(
        "offer fetching from one server without a hint, too. The server computes and keeps 42 MB for each 2,048 bytes of a "
        "record, 0.7 GB at most, and the records once more",
        default=False,
    )
    threads: int = option("threads that compute the hint and what is kept (default %(default)s)", default=1, parse=at_least(1))
    json: Path | None = json_file()


class ServedNameJson(TypedDict):
    """Versions of tiles that are served by one name."""

    name: str
    versions: list[Digest]


class ServedTilesJson(TypedDict):
    """All tiles that a server gives."""

    tiles: list[ServedNameJson]


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil serve tiles` to the parser's commands."""
    summary = "tiles that a server gives to devices without learning which"
    add_record_command(commands, "serve tiles", summary, EXAMPLES, ServeTiles, _tiles)


def _tiles(arguments: ServeTiles) -> int:
    root = arguments.folder / FOLDER
    if sum([arguments.list, arguments.remove is not None, arguments.tiles is not None]) != 1:
        raise InputError("give a folder of tiles with --name, or --list, or --remove NAME")
    if arguments.remove is not None:
        remove_served(root, arguments.remove)
        say(arguments, f"{arguments.remove} is served no more")
    elif arguments.tiles is not None:
        if arguments.name is None:
            raise InputError("say with --name how devices are to call these tiles")
        localizations = arguments.localizations or None  # none: devices do not fetch from one server alone
        version = add_served(
            root,
            arguments.name,
            arguments.tiles,
            localizations=localizations,
            hintless=arguments.hintless,
            threads=arguments.threads,
        )
        say(arguments, f"served in version {version[:16]}; devices fetch from ADDRESS/v1/tiles/{arguments.name}")
    served: list[ServedNameJson] = [{"name": name, "versions": versions_of(root, name)} for name in served_names(root)]
    record: ServedTilesJson = {"tiles": served}
    write_json(arguments.json, record)
    if arguments.list:
        for item in served:
            say(arguments, f"{item['name']}  {', '.join(version[:16] for version in item['versions'])}")
    return 0

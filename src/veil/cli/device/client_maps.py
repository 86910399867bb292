"""`veil client map`: make, list and delete maps of a server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veil.cli.common import EXIT_OK, Commands, add_command, say, write_json
from veil.cli.device.client_connection import AskedServer, add_action, connected
from veil.cli.records import option, positional
from veil.client import RemoteMap
from veil.errors import FileFormatError
from veil.files.tables import read_json

EXAMPLES = """\
  veil client map create lobby --token-file admin.token     an empty map, for contributions
  veil client map list
  veil client map delete lobby --token-file admin.token     with all contributions to it
"""
EXAMPLES_OF = {
    "create": "  veil client map create lobby --token-file admin.token\n"
    '  veil client map create lobby --accepts policy.json    such as {"forms": ["words"], "keep_days": 30}\n',
    "list": "  veil client map list\n  veil client map list --json -     with what each accepts\n",
    "delete": "  veil client map delete lobby --token-file admin.token --receipt gone.json\n",
}


@dataclass(frozen=True, kw_only=True)
class CreateMap(AskedServer):
    """Make an empty map, for contributions."""

    name: str = positional("name of the map, which no other map of the server has")
    accepts: Path | None = option(
        "a policy of what the map accepts (JSON, docs/reference/service.md#what-a-map-accepts; default: the server's)",
        metavar="FILE",
    )


@dataclass(frozen=True, kw_only=True)
class ListMaps(AskedServer):
    """List the maps that the token may use."""


@dataclass(frozen=True, kw_only=True)
class DeleteMap(AskedServer):
    """Delete a map with all contributions to it, with verified receipts."""

    map: str = positional("id of a map, or its name")
    receipt: Path | None = option("write the receipts of its contributions here (JSON)", metavar="FILE")


def add_map_actions(actions: Commands) -> None:
    """Add `veil client map` with its actions."""
    parser = add_command(
        actions,
        "map",
        "make, list and delete maps",
        "Make, list and delete maps of a server. Making and deleting takes a token of an administrator.",
        EXAMPLES,
    )
    maps = parser.add_subparsers(metavar="ACTION", required=True)
    add_action(maps, "create", "make an empty map, for contributions", EXAMPLES_OF["create"], CreateMap, _create)
    add_action(maps, "list", "list the maps that the token may use", EXAMPLES_OF["list"], ListMaps, _list)
    summary = "delete a map with all contributions to it, with verified receipts"
    add_action(maps, "delete", summary, EXAMPLES_OF["delete"], DeleteMap, _delete)


def _create(arguments: CreateMap) -> int:
    policy = None if arguments.accepts is None else _policy(arguments.accepts)
    with connected(arguments) as client:
        made = client.create_map(arguments.name, policy)
    write_json(arguments.json, dict(made.facts), private=True)
    _say_map(arguments, made)
    return EXIT_OK


def _policy(path: Path) -> dict[str, Any]:
    """The policy in a file. Raises FileFormatError for a file that is no JSON object."""
    policy = read_json(path)
    if not isinstance(policy, dict):
        raise FileFormatError(f'{path} must hold an object, such as {{"keep_days": 30}}')
    return policy


def _list(arguments: ListMaps) -> int:
    with connected(arguments) as client:
        maps = client.maps()
    write_json(arguments.json, {"maps": [dict(item.facts) for item in maps]}, private=True)
    for item in maps:
        _say_map(arguments, item)
    return EXIT_OK


def _delete(arguments: DeleteMap) -> int:
    with connected(arguments) as client:
        gone = client.map(arguments.map)
        receipts = [receipt.as_json() for receipt in client.delete_map(gone.id)]
    write_json(arguments.receipt, {"receipts": receipts}, private=True)
    write_json(arguments.json, {"map": gone.id, "receipts": receipts}, private=True)
    say(
        arguments,
        f"{gone.id}  {gone.name}: deleted, with {len(receipts)} contributions; their receipts are in the server's chain",
    )
    return EXIT_OK


def _say_map(arguments: AskedServer, item: RemoteMap) -> None:
    models = item.facts.get("models", [])
    images = ", ".join(f"{model['images']} images" for model in models) or "no images yet"
    say(arguments, f"{item.id}  {item.name}: {images}")

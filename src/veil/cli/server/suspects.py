"""`veil serve suspects`: contributions to a server's map that its administrator should look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from veil.cli.common import explain, say, say_table, write_json
from veil.cli.records import add_record_command, json_file, option, positional
from veil.cli.server.serve import AskedSettings, service_of
from veil.report.tables import Name, Table, numbers, percent
from veil.wire.names import chosen

EXAMPLES = """\
  veil serve suspects store/ --map lobby                  what speaks against contributions, and how much each token gave
  veil serve suspects store/ --map lobby --json -         the same, with all numbers
"""


@dataclass(frozen=True, kw_only=True)
class ServeSuspects(AskedSettings):
    """List contributions that are degenerate, contradict the map, repeat others or are seen by their own token alone, and
    how much of the map each token gave (docs/theory/contributions.md). Nothing is deleted: `DELETE` of the contribution
    does that, and a revoked token gives no more (`veil serve token`). Honest contributions can be listed, too.
    """

    folder: Path = positional("folder of the server")
    map: str = option("id of a map, or its name", required=True, metavar="MAP")
    json: Path | None = json_file()


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil serve suspects` to the parser's commands."""
    summary = "contributions to a server's map that its administrator should look at"
    add_record_command(commands, "serve suspects", summary, EXAMPLES, ServeSuspects, _suspects)


def _suspects(arguments: ServeSuspects) -> int:
    service = service_of(arguments)
    try:
        from veil.server.maps.suspects import shares_of, suspects_of, suspects_record

        record = chosen(service.records.all(), arguments.map)
        items = service.records.contributions(record.id)
        write_json(arguments.json, suspects_record(record, items))
        names = {token.id: token.name for token in service.tokens.all()}
        rows = [
            (
                share.token,
                names.get(share.token, "?"),
                *(str(share.contributions), percent(share.share, 0), str(share.mapped), str(share.suspects)),
            )
            for share in shares_of(items)
        ]
        say_table(arguments, share_table(rows))
        suspects = suspects_of(items)
        for suspect in suspects:
            item = suspect.contribution
            weight = "" if suspect.weight is None else f", weight {suspect.weight:.2f}"
            say(arguments, f"{item.id}  of {item.token}, {item.state}{weight}")
            for reason in suspect.reasons:
                explain(arguments, f"    {reason.kind}: {reason.told}")
        if not suspects:
            say(arguments, f"nothing speaks against the {len(items)} contributions to {record.name!r}")
        return 0
    finally:
        service.close()


def share_table(rows: Sequence[tuple[str, ...]]) -> Table:
    """The table of tokens: what each contributed, the share of all contributions, and how many of them are suspect."""
    return Table(
        columns=[Name("token", least=99), Name("name"), *numbers("contributions", "share, %", "mapped", "suspect")], rows=rows
    )

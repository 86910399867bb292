"""`veil lab results`: which results are older than their code, what renewing them costs, and whether they still hold."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

from veil.cli.common import Bar, Commands, add_command, report, say, say_table, write_json
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.errors import InputError
from veil.report.tables import Name, Number, Table
from veil_lab.files.results import read_records, sources, write_record
from veil_lab.files.runs import recorded
from veil_lab.results.code import changed
from veil_lab.results.record import ResultRecord, differences

EXAMPLES = """\
  veil lab results list                       records, their age, and what a new run costs
  veil lab results run --budget 30m           renew the stalest that fit into half an hour
  veil lab results run demo                   renew one
  veil lab results run demo --command "veil demo" --question "What does an upload cost?"    make a new one
  veil lab results check --budget 1m          run the cheapest again, and compare
"""
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


class ResultAgeJson(TypedDict):
    """Age of one record: `changed` are modules that are another code today; an unknown cost is null."""

    name: str
    command: str
    date: str
    commit: str
    imported: bool
    processor_seconds: float | None
    changed: list[str]


def budget(text: str) -> float:
    """Parse a span of time such as 90s, 30m or 2h into seconds (an argparse type)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if match is None or not float(match[1]) > 0:
        raise argparse.ArgumentTypeError(f"must be a span of time such as 90s, 30m or 2h, got {text!r}")
    return float(match[1]) * _UNITS[match[2]]


@dataclass(frozen=True, kw_only=True)
class _Folder(Record):
    """Records of a folder."""

    record: tuple[str, ...] = positional("names of records (default: all)", optional=True)
    records: Path = option("folder of the records (default %(default)s)", default=Path("lab/results/records"), metavar="FOLDER")
    root: Path = option("folder of the repository (default %(default)s)", default=Path(), metavar="FOLDER")


def chosen(arguments: _Folder) -> dict[str, ResultRecord]:
    """The records of the folder that were asked for, by name. Raises InputError for a name that is none."""
    records = read_records(arguments.records)
    if missing := [name for name in arguments.record or () if name not in records]:
        raise InputError(f"{arguments.records} holds no record {missing[0]!r}; it holds {', '.join(records) or 'none'}")
    if not records:
        raise InputError(f"{arguments.records} holds no records; run this in the repository's folder, or give one")
    return {name: record for name, record in records.items() if not arguments.record or name in arguments.record}


def ages_of(arguments: _Folder, records: Mapping[str, ResultRecord]) -> dict[str, ResultAgeJson]:
    """How old records are, by name."""
    return {
        name: {
            "name": record.name,
            "command": record.command,
            "date": record.date,
            "commit": record.commit,
            "imported": record.is_imported,
            "processor_seconds": record.processor_seconds,
            "changed": changed(record.modules, sources(arguments.root, record.modules)),
        }
        for name, record in records.items()
    }


@dataclass(frozen=True, kw_only=True)
class ListResults(_Folder):
    """List records of results, those that are older than their code first."""

    json: Path | None = json_file()


@dataclass(frozen=True, kw_only=True)
class RunResults(_Folder):
    """Run the commands of records again, and write what they print today: the stalest first, as many as fit."""

    budget: float | None = option("processor time that they may cost together (30m)", parse=budget, metavar="SPAN")
    command: str | None = option("command of a new record, which is named by its only name", metavar="COMMAND")
    question: str = option("the question that a new record answers", default="")
    varying: tuple[str, ...] = option(
        "columns of a new record whose numbers move from run to run", default=(), metavar="COLUMN"
    )


@dataclass(frozen=True, kw_only=True)
class CheckResults(_Folder):
    """Run the commands of records again, cheapest first, and compare what they print; a record is not changed."""

    budget: float | None = option("processor time that they may cost together (1m)", parse=budget, metavar="SPAN")
    tolerance: float = option("relative difference of numbers that agree (default %(default)s)", default=0.02)


def register(actions: Commands) -> None:
    """Add `veil lab results` with its actions to the subparsers `actions`."""
    summary = "records of results: their age, new runs, and checks"
    group = add_command(actions, "results", summary, "Keep the results that pages cite as young as their code.", EXAMPLES)
    commands = group.add_subparsers(metavar="ACTION", required=True)
    add_record_command(commands, "list", "which are older than their code", EXAMPLES, ListResults, _list)
    add_record_command(commands, "run", "renew records", EXAMPLES, RunResults, _renew)
    add_record_command(commands, "check", "run again and compare", EXAMPLES, CheckResults, _check)


def age_table(ages: list[ResultAgeJson]) -> Table:
    """Names, days, costs and numbers of changed modules."""
    columns = (Name("record"), Name("day"), Name("commit"), Number("processor s"), Number("changed modules"))
    rows = []
    for age in ages:
        seconds = "-" if age["processor_seconds"] is None else f"{age['processor_seconds']:,.0f}"
        stale = "copied" if age["imported"] else str(len(age["changed"]))
        rows.append((age["name"], age["date"], age["commit"], seconds, stale))
    return Table(columns=columns, rows=rows)


def _stalest(ages: Mapping[str, ResultAgeJson]) -> list[str]:
    """Names of records: those with most changed modules first, then by their day."""
    return sorted(ages, key=lambda name: (-len(ages[name]["changed"]), ages[name]["date"], name))


def _list(arguments: ListResults) -> int:
    ages = ages_of(arguments, chosen(arguments))
    listed = [ages[name] for name in _stalest(ages)]
    say_table(arguments, age_table(listed))
    write_json(arguments.json, {"records": listed})
    return 0


def fitting(names: list[str], records: Mapping[str, ResultRecord], budget_s: float | None) -> list[str]:
    """Those of `names`, in their order, whose costs fit into a budget together; all without one, if they have a known cost."""
    kept, left = [], float("inf") if budget_s is None else budget_s
    for name in names:
        cost = records[name].processor_seconds
        if budget_s is None or (cost is not None and cost <= left):
            kept.append(name)
            left -= cost or 0.0
    return kept


def _run(arguments: _Folder, name: str, command: str, question: str) -> ResultRecord:
    """The record of a new run of a command."""
    data = os.environ.get("VEIL_DATA")
    where = None if data is None else Path(data).resolve()
    return recorded(command, name=name, question=question, root=arguments.root.resolve(), data=where)


def _again(arguments: _Folder, record: ResultRecord) -> ResultRecord:
    """A new run of a record's command, with its settings."""
    return replace(
        _run(arguments, record.name, record.command, record.question), settings=record.settings, varying=record.varying
    )


def _new(arguments: RunResults, command: str) -> int:
    """Make a record that is not there."""
    if arguments.record is None or len(arguments.record) != 1 or not arguments.question:
        raise InputError("a new record needs one name, a --command and a --question")
    (name,) = arguments.record
    if name in read_records(arguments.records):
        raise InputError(f"there is a record {name} already; without --command its own command is run")
    made = replace(_run(arguments, name, command, arguments.question), varying=arguments.varying)
    report(arguments, write_record(arguments.records, made), "a new record")
    return 0


def _renew(arguments: RunResults) -> int:
    if arguments.command is not None:
        return _new(arguments, arguments.command)
    records = chosen(arguments)
    ages = ages_of(arguments, records)
    stale = [name for name in _stalest(ages) if arguments.record or ages[name]["changed"]]
    names = fitting(stale, records, arguments.budget)
    with Bar("running") as bar:
        for done, name in enumerate(names):
            bar(done, len(names))
            report(arguments, write_record(arguments.records, _again(arguments, records[name])), "a new record")
        bar(len(names), len(names))
    say(arguments, f"renewed {len(names)} records; {len(stale) - len(names)} stale ones did not fit")
    return 0


def _check(arguments: CheckResults) -> int:
    records = chosen(arguments)
    by_cost = sorted(records, key=lambda name: (records[name].processor_seconds or float("inf"), name))
    names = fitting(by_cost, records, arguments.budget)
    differing: dict[str, list[str]] = {}
    with Bar("checking") as bar:
        for done, name in enumerate(names):
            bar(done, len(names))
            differing[name] = differences(records[name], _again(arguments, records[name]), arguments.tolerance)
        bar(len(names), len(names))
    for name, sentences in differing.items():
        for sentence in sentences:
            say(arguments, f"{name}: {sentence}")
    wrong = sum(map(bool, differing.values()))
    say(arguments, f"{len(names) - wrong} of {len(names)} records hold; {len(records) - len(names)} did not fit")
    return 1 if wrong else 0

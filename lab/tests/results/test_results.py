"""Records of results: pages cite them, digits without a record fail, and a run is compared with its record."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from veil.cli import main
from veil.errors import FileFormatError, InputError
from veil.ldp.composition import composed_epsilon
from veil.ldp.mechanism import SubsetMechanism
from veil_lab.files.results import read_records, sources, write_record
from veil_lab.files.runs import recorded
from veil_lab.results.code import changed, digest_of
from veil_lab.results.laws import with_law
from veil_lab.results.pages import rendered, stray_digits
from veil_lab.results.printed import tables_in
from veil_lab.results.record import ResultRecord, ResultTable, agree, differences, numbers

PRINTED = """\
Some words, a | b.

| form | m | share | bytes |
| --- | ---: | --- | --- |
| subspaces | 2 | 56 (52-60) | 1,234 |
| subspaces | 4 | 43 (40-47) | 2,468 |
| words | - | 11 of 18 | 320 |

Done.
"""
PROGRAM = """\
import argparse
import sys
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--value", default="3")
given = parser.parse_args()
Path("written").write_text("gone with the run")
print("| name | value |", "| --- | --- |", f"| a | {given.value} |", sep="\\n")
"""


def record(**other: object) -> ResultRecord:
    """A record of the printed table."""
    usual = ResultRecord(
        name="forms",
        question="How much is recovered?",
        command="python lab/program.py",
        tables=tuple(tables_in(PRINTED)),
        date="2026-11-27",
        commit="0123abcd",
        settings={"features": "2,048"},
    )
    return replace(usual, **other)  # type: ignore[arg-type]


def test_printed_tables_are_read_as_they_stand() -> None:
    """Golden: rows are told apart by as many columns as that takes."""
    (table,) = tables_in(PRINTED)
    assert table.columns == ("form", "m", "share", "bytes") and table.labels == 2
    assert list(table.keys()) == ["subspaces, 2", "subspaces, 4", "words, -"]
    assert table.cell("subspaces, 4", "bytes") == "2,468" and table.cell("subspaces", "bytes") is None
    (again,) = tables_in(table.markdown())
    assert again == table
    assert list(tables_in("a | b\n--- | ---\n")) == []


def test_a_page_is_filled_from_records() -> None:
    text = "In Table 2 of [D21], {{forms | subspaces, 2 | share}} % of {{forms | features}} at m = `4`.\n\n{{forms}}\n"
    page = rendered(text, {"forms": record()})
    assert (
        "56 (52-60) % of 2,048 at m = `4`" in page
        and "| words | - | 11\N{NO-BREAK SPACE}of\N{NO-BREAK SPACE}18 | 320 |" in page
    )
    assert "From `python lab/program.py`: run at commit 0123abcd, 2026-11-27." in page


def test_notes_stand_below_a_table_each_once() -> None:
    """By hand: the rows hold the numbers of the notes, in their order; a row without a note holds none."""
    rows = (("a", "7", "no map"), ("b", "8", ""), ("c", "9", "too few"), ("d", "6", "no map"))
    noted = record(tables=(ResultTable(columns=("name", "value", "note"), rows=rows),))
    shown = rendered("{{forms}}", {"forms": noted}).split("\n")
    assert shown[:6] == [
        "| name | value | note |",
        "| --- | --- | --- |",
        "| a | 7 | 1 |",
        "| b | 8 |  |",
        "| c | 9 | 2 |",
        "| d | 6 | 1 |",
    ]
    assert shown[6:10] == ["", "1. no map", "2. too few", ""]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("A page.\nIt recovers 56 %.", "line 2: no record vouches for the digits in 'It recovers 56 %.'"),
        ("Half of 2,048 features", "no record vouches"),
        ("{{forms | subspaces, 3 | share}}", "line 1: table 1 of record forms has no cell 'subspaces, 3', 'share'"),
        ("{{forms | subspaces, 2 | shares}}", "has no cell"),
        ("{{forms | 2}}", "has 1 tables, and no table 2"),
        ("{{forms | epsilon}}", "has no setting 'epsilon'"),
        ("\n{{none}}", "line 2: there is no record 'none'"),
    ],
)
def test_what_nothing_vouches_for_fails(text: str, named: str) -> None:
    """Broken twins: a digit that was typed, a cell, a column, a table, a setting and a record that are gone."""
    with pytest.raises(InputError, match=named.replace("|", r"\|")):
        rendered(text, {"forms": record()})


def test_empty_cells_at_the_end_are_no_part_of_a_key() -> None:
    """A citation has no spaces at its ends, so that it could not name such a row."""
    table = ResultTable(columns=("from", "m", "SSIM"), rows=(("raw", "", "0.6"), ("words", "2", "0.5"), ("words", "4", "0.4")))
    assert list(table.keys()) == ["raw", "words, 2", "words, 4"] and table.cell("raw", "SSIM") == "0.6"


def test_epsilons_come_with_what_they_mean() -> None:
    """Oracle: Eq. 2 of docs/theory/words.md in floats, and the plain sum of epsilons, which one feature spends.

    A row without words has none, and columns that are printed stay as they are.
    """
    rows = (("raw", "-", "-", "-", "1"), ("words", "4096", "10", "2", "2"), ("words", "256,000", "10", "2", "3"))
    table = ResultTable(columns=("form", "K", "epsilon", "m", "right"), rows=rows)
    truth = [100 / (1 + (words - 2) / (2 * math.exp(10.0))) for words in (4096, 256_000)]
    told = with_law(table, {})
    assert told.columns == ("form", "K", "epsilon", "m", "true word sent", "right")
    assert [row[4] for row in told.rows] == ["-", *(f"{value:.1f} %" for value in truth)]
    assert with_law(told, {}) == told and with_law(record().tables[0], record().settings) == record().tables[0]
    whole = with_law(table, {"features": "1,100", "delta": "0"})
    assert whole.columns[4:6] == ("true word sent", "epsilon of the image") and whole.rows[1][5] == "11000"
    page = rendered("{{forms | true word sent, words 256000, epsilon 10, m 2}}", {"forms": record()})
    assert page == f"{truth[1]:.1f} %"
    with pytest.raises(InputError, match="needs words, epsilon and m"):
        rendered("{{forms | true word sent, epsilon 10, m 2}}", {"forms": record()})


def test_features_that_were_attacked_are_not_those_that_an_image_sent() -> None:
    """Oracle: the plain sum of epsilons at delta 0. Broken twin: 60 attacked features would make the image's epsilon 600."""
    rows = (("4096", "10", "2", "60"), ("4096", "10", "2", "30"))
    settings = {"features": "1,100", "delta": "0"}
    attacked = with_law(ResultTable(columns=("K", "epsilon", "m", "features"), rows=rows), settings)
    assert [row[attacked.columns.index("epsilon of the image")] for row in attacked.rows] == ["11000", "11000"]
    sent = with_law(ResultTable(columns=("K", "epsilon", "m", "features of the image"), rows=rows), settings)
    assert [row[sent.columns.index("epsilon of the image")] for row in sent.rows] == ["600", "300"]


def test_an_epsilon_of_the_image_that_was_rounded_down_is_told_anew() -> None:
    """Oracle: the composition itself. Without the settings of the law the cell stays as it was printed."""
    nearest = ResultTable(columns=("epsilon", "of the image"), rows=(("5", "539"),))
    settings = {"words": "4,096", "m": "2", "features": "1,000", "delta": "1e-6"}
    exact = composed_epsilon({SubsetMechanism(dictionary_size=4096, epsilon=5.0, m=2): 1000}, 1e-6)
    (row,) = with_law(nearest, settings).rows
    assert 539 < exact <= float(row[2]) < exact + 0.1 and with_law(nearest, {}) == nearest


def test_names_equations_and_code_may_hold_digits() -> None:
    text = """\
# Epsilon, and $\\epsilon = 10$

The 3D points of castle-P19 with SHA-256, Eq. 12, Tables 2 and 3, Sec. 4, Fig. 5, COLMAP 4.1, [P23], Dusmanu et al. 2021.
[This](../theory/x.md#eq-15) is `--m 4`.

```sh
veil map up/ --seed 3
```
"""
    assert list(stray_digits(text)) == []
    assert [line for line, _ in stray_digits("# Ten\n\nx 5\n\n3 of y")] == [3, 5]


def test_a_record_that_was_changed_by_hand_is_refused(tmp_path: Path) -> None:
    path = write_record(tmp_path, record(modules={"a.py": digest_of("x = 1")}))
    assert read_records(tmp_path) == {"forms": record(modules={"a.py": digest_of("x = 1")})}
    content = json.loads(path.read_text())
    content["tables"][0]["rows"][0][2] = "16 (12-20)"
    path.write_text(json.dumps(content))
    with pytest.raises(FileFormatError, match=r"forms.json: record forms was changed by hand"):
        read_records(tmp_path)
    for bad in ("[]", "{}", "nonsense", '{"name": 3}'):
        path.write_text(bad)
        with pytest.raises(FileFormatError):
            read_records(tmp_path)
    write_record(tmp_path, record()).rename(tmp_path / "other.json")
    with pytest.raises(FileFormatError, match=r"holds the record forms; name it forms.json"):
        read_records(tmp_path)


def test_comments_and_docstrings_do_not_age_a_record(tmp_path: Path) -> None:
    """The definition: a digest differs if, and only if, what runs differs."""
    code = 'def f(x: int) -> int:\n    """Twice."""\n    return 2 * x  # twice\n'
    same = 'def f(x: int) -> int:\n    """Two\n    times."""\n\n    return (2\n            * x)\n'
    assert digest_of(code) == digest_of(same) != digest_of(code.replace("2 *", "3 *"))
    (tmp_path / "a.py").write_text(code)
    run = {"a.py": digest_of(code), "gone.py": "0"}
    assert changed(run, sources(tmp_path, run)) == ["gone.py"]
    (tmp_path / "a.py").write_text(code.replace("2 *", "3 *"))
    assert changed(run, sources(tmp_path, run)) == ["a.py", "gone.py"]


def test_numbers_agree_within_intervals_and_tolerance() -> None:
    assert numbers("1,234 of 5.5e-3, P19") == (1234.0, 5.5e-3)
    assert agree("56 (52-60)", "53 (50-57)", 0.0) and not agree("56 (52-60)", "61 (57-65)", 0.5)
    assert agree("100", "101", 0.02) and not agree("100", "103", 0.02)
    assert not agree("11 of 18", "11 off 18", 1.0) and not agree("-", "3", 1.0)
    (table,) = tables_in(PRINTED.replace("2,468", "2,500").replace("| words | - | 11 of 18 | 320 |\n", ""))
    assert differences(record(varying=("bytes",)), record(tables=(*tables_in(PRINTED.replace("2,468", "3")),)), 0.01) == []
    told = differences(record(), record(tables=(table,)), 0.01)
    assert told == ["subspaces, 4, bytes: 2,500 instead of 2,468"] + [
        f"words, -, {column}: is gone" for column in ("form", "m", "share", "bytes")
    ]


@pytest.mark.slow
def test_a_run_leaves_a_record_that_checks_hold_against(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A program that prints a table is run, listed, checked, and found wrong where its record says another number."""
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "program.py").write_text(PROGRAM)
    run = recorded("python lab/program.py --value 7", name="seven", question="What?", root=tmp_path, data=None)
    assert run.tables == (ResultTable(columns=("name", "value"), rows=(("a", "7"),)),)
    assert list(run.modules) == ["lab/program.py"] and run.processor_seconds is not None and run.processor_seconds > 0
    assert not (tmp_path / "written").exists()
    folder = tmp_path / "records"
    folder.mkdir()
    write_record(folder, run)
    where = ["--records", str(folder), "--root", str(tmp_path)]
    assert main(["lab", "results", "check", *where]) == 0
    assert "1 of 1 records hold" in capsys.readouterr().out
    write_record(folder, replace(run, tables=(ResultTable(columns=("name", "value"), rows=(("a", "8"),)),)))
    assert main(["lab", "results", "check", *where]) == 1
    assert "seven: a, value: 7 instead of 8" in capsys.readouterr().out
    (tmp_path / "lab" / "program.py").write_text(PROGRAM + "print()\n")
    assert main(["lab", "results", "list", *where]) == 0
    assert capsys.readouterr().out.split()[-1] == "1"  # one module changed
    assert main(["lab", "results", "run", "--budget", "5m", *where]) == 0
    assert read_records(folder)["seven"].tables == run.tables
    again = ["--command", "python lab/program.py --value 9", "--question", "What?"]
    assert main(["lab", "results", "run", "nine", *again, *where]) == 0
    assert read_records(folder)["nine"].cell("a", "value") == "9"
    assert main(["lab", "results", "run", "nine", *again, *where]) != 0  # it is there already
    assert main(["lab", "results", "run", "ten", *again[:2], *where]) != 0  # it answers no question
    capsys.readouterr()
    with pytest.raises(InputError, match="failed with exit code 2"):
        recorded("python lab/program.py --nothing", name="x", question="?", root=tmp_path, data=None)
    with pytest.raises(InputError, match="begins with veil"):
        recorded("rm -r /", name="x", question="?", root=tmp_path, data=None)

"""The record of measured forms, which README, choose.md, protects.md, the theory and `veil inspect` quote word for word."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from veil.audit.finding import Finding, Share
from veil.audit.measured_forms import MeasuredAttack, MeasuredForm, measured_attacks
from veil.errors import FileFormatError, InputError
from veil.files.measured_forms import bundled_measured_forms, read_measured_forms, write_measured_forms
from veil.ldp.rounding import outward_percent
from veil_lab.report.measured_forms import cost_table, interval_table, recovery_table, summary_table
from veil_lab.studies.attacks.form_releases import DICTIONARY_SIZE, FORMS
from worlds.documents import ROOT
from worlds.schemas import validate

CONTEXT = MeasuredAttack(attack="context", uploads=1, unit="descriptor", shares=(0.171, 0.24, 0.28), total=600)
VIEWS = replace(CONTEXT, attack="matched views", uploads=5, shares=(0.18, 0.3, 0.32))
BOUND = replace(CONTEXT, attack="oracle of 100", shares=(0.5, 0.6, 0.7), oracle=True)
PLACED = MeasuredAttack(attack="positions alone", uploads=1, unit="release", shares=(0.5,), total=4)
FORM = MeasuredForm(
    form="subspaces",
    queries=11,
    localized=10,
    wrong=0,
    features=1000.0,
    upload_bytes=488_000.0,
    epsilon_image=None,
    attacks=(CONTEXT, BOUND, VIEWS, PLACED),
)


def test_every_document_quotes_the_record() -> None:
    """A number that is changed on one side alone fails here."""
    forms = bundled_measured_forms()
    assert [item.form for item in forms] == [setting.name for setting in FORMS]
    validate("evaluate-forms-record", {"forms": [item.as_json() for item in forms]})
    readme, choose = (ROOT / "README.md").read_text().splitlines(), (ROOT / "docs" / "choose.md").read_text().splitlines()
    protects = (ROOT / "docs" / "protects.md").read_text().splitlines()
    attacked, intervals = recovery_table(forms), interval_table(forms)
    assert attacked is not None and intervals is not None
    summary = summary_table(forms).markdown()
    assert [line for line in summary if line not in protects] == []
    quoted = [line for line in readme if line.startswith("|")]
    assert len(quoted) == 2 + 4 and [line for line in quoted if line not in summary] == []
    assert [
        line for line in [*cost_table(forms).markdown(), *attacked.markdown(), *intervals.markdown()] if line not in choose
    ] == []
    told = {item.form: item.told for item in forms}
    first = " ".join((ROOT / "docs" / "theory" / "hardened.md").read_text().split("\n\n")[1].split())
    assert told["subspaces of all features"] in first and told["subspaces"] in first


def test_the_page_tells_how_often_the_true_word_is_sent() -> None:
    """Oracle: Eq. 2 of docs/theory/words.md in floats, m = 2 of the words of the study's dictionary."""
    told = [
        f"{outward_percent(1 / (1 + (DICTIONARY_SIZE - 2) / (2 * math.exp(epsilon))))} %"
        for epsilon in sorted((form.epsilon for form in FORMS if form.epsilon), key=[5.0, 4.0, 3.0, 10.0].index)
    ]
    sentence = "probability {} at epsilon 5, {} at 4, {} at 3, and {} at 10.".format(*told)
    assert sentence in (ROOT / "docs" / "choose.md").read_text()


def test_sentences_leave_oracles_out_and_name_what_more_uploads_give() -> None:
    assert FORM.told == (
        "17 / 24 / 28 % of the descriptors within 0.1 / 0.2 / 0.4 (context), 18 / 30 / 32 % from 5 uploads (matched views); "
        "the place of 2 of 4 photographs (positions alone)"
    )
    assert "uploads" not in replace(FORM, attacks=(CONTEXT, replace(VIEWS, shares=(0.1, 0.1, 0.1)))).told
    wider = replace(FORM, attacks=(CONTEXT, replace(VIEWS, shares=(0.1, 0.3, 0.4)))).told
    assert wider.endswith("10 / 30 / 40 % from 5 uploads (matched views)")
    words = replace(CONTEXT, attack="posterior", unit="word", shares=(0.02,))
    votes = replace(words, attack="votes", uploads=5, shares=(0.05,))
    assert replace(FORM, attacks=(words, votes)).told == "2 % of the words (posterior), 5 % from 5 uploads (votes)"
    attacked = recovery_table([FORM])
    assert attacked is not None
    lines = attacked.markdown()
    assert cost_table([FORM]).markdown()[2] == "| subspaces | 10 of 11 | 0 | 1000 | 488 | - |"
    assert "| oracle of 100 | 1 | 50 / 60 / 70 |" in lines
    assert "| matched views | 5 | 18 / 30 / 32 |" in lines and "| positions alone | 1 | 2 of 4 placed |" in lines
    assert recovery_table([replace(FORM, attacks=())]) is None and interval_table([replace(FORM, attacks=())]) is None


def test_the_epsilon_of_an_image_is_rounded_up() -> None:
    """Oracle: decimals by hand. Broken twin: the nearest whole number is below the loss."""
    words = replace(FORM, epsilon_image=539.3001)
    for table in (cost_table([words]), summary_table([words])):
        told = table.markdown()[2].split(" | ")
        assert "539.4" in [cell.strip("| ") for cell in told]
    assert float(f"{539.3001:.0f}") < 539.3001


def test_intervals_stand_beside_the_best_attacks() -> None:
    known = replace(CONTEXT, photographs=15, low=(0.15, 0.2, 0.25), high=(0.19, 0.28, 0.31))
    table = interval_table([replace(FORM, attacks=(known, BOUND, VIEWS))])
    assert table is not None
    lines = table.markdown()
    assert "| subspaces | context | 1 | 15 | 17 / 24 / 28 | 15 to 19 / 20 to 28 / 25 to 31 |" in lines
    assert "| subspaces | matched views | 5 | 1 | 18 / 30 / 32 | - |" in lines and not any("oracle" in line for line in lines)


def test_findings_that_were_not_run_are_left_out() -> None:
    placed = Finding(
        attack="positions alone",
        family="positions",
        assumes="a map",
        unit="release",
        certified=Share(count=2, total=4, low=0.07, high=0.93),
    )
    skipped = Finding(attack="lattice", family="structural", assumes="nothing", skipped="no time")
    assert list(measured_attacks([placed, skipped], 1)) == [PLACED]


def test_records_come_back_and_others_are_refused(tmp_path: Path) -> None:
    write_measured_forms(tmp_path / "forms.json", [FORM])
    assert read_measured_forms(tmp_path / "forms.json") == (FORM,)
    with pytest.raises(InputError, match="no record"):
        MeasuredForm.from_json({"form": "raw"})
    for text in ("{}", "[1]", '{"forms": [{"attacks": 3}]}', "\xff"):
        (tmp_path / "other.json").write_text(text, encoding="latin-1")
        with pytest.raises(FileFormatError, match=r"other\.json is no record"):
            read_measured_forms(tmp_path / "other.json")

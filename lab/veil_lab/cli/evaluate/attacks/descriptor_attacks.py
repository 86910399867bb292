"""`veil evaluate attacks --descriptor`: every attack on every form of several descriptors, in one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veil.attacks.distribution.learned_model import LearnedModel
from veil.cli.codebook.collect import Collection, Wanted
from veil.cli.common import Bar, StepBar, at_least, explain, progress, say, say_table, write_json
from veil.cli.records import Record, json_file, option, positional
from veil.codebooks.sampling import WordTraining
from veil.device.descriptor_books import books_of
from veil.errors import InputError
from veil.extraction import EXTRACTORS, Extractor, extract, full_name
from veil.extraction.picture import Picture
from veil.features import Features
from veil.files.photographs.pictures import read_picture
from veil.progress import StepCount
from veil.report.tables import Name, Table, numbers
from veil_lab.cli.evaluate.attacks.photographs import chosen_photographs
from veil_lab.cli.evaluate.descriptors import Descriptors, extraction_options, usable
from veil_lab.studies.attacks.by_descriptor import DescriptorRow, DescriptorStudy, attack_rows
from veil_lab.studies.attacks.descriptor_material import DescribedPhotographs, StudyBooks, database_of
from veil_lab.training.altered import second_view
from veil_lab.training.context_options import ContextTraining
from veil_lab.training.density_training import DensityTraining
from veil_lab.training.learning import train_learned_model

MOST, M, SECONDS, DECOYS = 1000, 4, 600.0, 65536
LEGEND = (
    "Percent of the attacked features that are recovered to within 0.1 / 0.4 (of two at random: 1.2 to 1.4); of words, named.",
    "The oracle picks the best of 100 candidates, as nobody can. A second view is the photograph warped, as of something flat:",
    "the most that two views can share. Attacks on lines, positions and order see no descriptor (leave --descriptor out).",
)


@dataclass(frozen=True, kw_only=True)
class AskedAttacks(Record):
    """Photographs that are attacked, those of the attacker, and descriptors that are compared."""

    victims: tuple[Path, ...] = positional("the victims: photographs that are attacked", metavar="PHOTOS")
    attacker: tuple[Path, ...] = option("the attacker's photographs", required=True, metavar="PHOTOS")
    photographs: int = option(
        "photographs attacked at most, half of them as further uploads (default %(default)s)", default=80, parse=at_least(2)
    )
    attacked_features: int = option("features that are attacked (default %(default)s)", default=400, parse=at_least(10))
    per_image: int | None = option(
        "features of each photograph that are lifted (default 120; --descriptor: 1000)", parse=at_least(10)
    )
    m: tuple[int, ...] | None = option("dimensions of the subspaces (default 2 4 8 16; --descriptor: 4)", parse=at_least(2))
    word_count: int = option("number of words that decoys come from (default %(default)s)", default=16384, parse=at_least(64))
    public: int = option("descriptors in the attacker's database (default %(default)s)", default=65536, parse=at_least(64))
    threads: int = option("threads of the structural attacks (default %(default)s)", default=2, parse=at_least(1))
    seed: int = option("seed by which features are drawn (default %(default)s)", default=0, parse=at_least(0))

    descriptor: tuple[Extractor, ...] | None = option(
        f"one table of all attacks on releases of each of these ({', '.join(EXTRACTORS)}; aliked: aliked-n16rot)",
        parse=full_name,
        choices=EXTRACTORS,
        metavar="NAME",
    )
    epsilon: tuple[float, ...] = option("epsilon of a feature in words (default 4)", default=(4.0,), metavar="E")
    max_seconds: float = option("processor time of the attacks on a form (default %(default)g)", default=SECONDS)
    learn: int = option(
        "training steps of `modes` and `context` (default: leave them out)", default=0, parse=at_least(0), metavar="STEPS"
    )
    json: Path | None = json_file()


def compare_descriptors(arguments: AskedAttacks) -> int:
    """Run `veil evaluate attacks --descriptor`; exit code 0."""
    if arguments.learn:  # refused before any work where torch is missing
        from veil_lab.training.simulated_releases import torch  # noqa: F401
    victims = chosen_photographs(arguments.victims, arguments.photographs)
    owned = chosen_photographs(arguments.attacker, None)
    if len(victims) < 2 or len(owned) < 2:
        raise InputError("attacks need two photographs or more on either side; give more of them")
    study = DescriptorStudy(
        features=arguments.attacked_features,
        structural=arguments.attacked_features,
        most=arguments.per_image or MOST,
        m=(arguments.m or [M])[0],
        epsilons=tuple(arguments.epsilon),
        seconds=arguments.max_seconds,
        seed=arguments.seed,
        threads=arguments.threads,
    )
    named = usable(arguments.descriptor or ["sift"])
    rows: list[DescriptorRow] = []
    facts: list[dict[str, Any]] = []
    for name, network in named.networks.items():
        photographs, books, about = _material(arguments, name, network, victims, owned, study.most)
        model = _learned(name, photographs, books, arguments) if arguments.learn else None
        facts.append({**about, "learned": arguments.learn})
        rows += _rows(name, photographs, books, study, model)
        if str(arguments.json) != "-":  # what is done is not lost if the rest is interrupted
            write_json(arguments.json, _record(rows, facts, named))
    if str(arguments.json) == "-":
        write_json(arguments.json, _record(rows, facts, named))
    say_table(arguments, material_table(facts))
    say(arguments, "")
    reasons = reasons_of(rows, named)
    say_table(arguments, compared_attacks(rows, named, reasons))
    say(arguments, "")
    explain(arguments, *LEGEND, *(f"- {mark}: {why}" for why, mark in reasons.items()))
    return 0


def _record(rows: Sequence[DescriptorRow], facts: list[dict[str, Any]], named: Descriptors) -> dict[str, Any]:
    return {"descriptors": facts, "rows": [row.as_json() for row in rows], "left_out": named.as_json()}


def _rows(
    name: str, photographs: DescribedPhotographs, books: StudyBooks, study: DescriptorStudy, model: LearnedModel | None
) -> list[DescriptorRow]:
    with StepBar(f"{name}: attacks") as bar:
        progress = StepCount(bar, 1.0).part(1.0, f"{name}: ")
        return attack_rows(name, photographs, books, study, model=model, progress=progress)


def _learned(name: str, photographs: DescribedPhotographs, books: StudyBooks, arguments: AskedAttacks) -> LearnedModel:
    """The networks that the attacker trains on its own photographs, as long as --learn says."""
    with Bar(f"{name}: density") as density, Bar(f"{name}: context") as context:
        return train_learned_model(
            photographs.owned,
            books.dictionary,
            source="the attacker's photographs",
            options=DensityTraining(steps=arguments.learn, seed=arguments.seed),
            context_options=ContextTraining(steps=arguments.learn, seed=arguments.seed),
            on_density=density,
            on_context=context,
        )


def _material(
    arguments: AskedAttacks,
    name: Extractor,
    network: Any,
    victims: Sequence[tuple[str, Path]],
    owned: Sequence[tuple[str, Path]],
    most: int,
) -> tuple[DescribedPhotographs, StudyBooks, dict[str, Any]]:
    """Features of one descriptor, the books that are made of the attacker's, and what is told of them."""

    def described(pictures: Sequence[tuple[str, Path]], step: str) -> Iterator[tuple[str, Picture, Features]]:
        for label, path in progress(pictures, f"{name}: {step}"):
            picture = read_picture(path)
            try:
                yield label, picture, extract(picture, name, extraction_options(name, most), network)
            except InputError:  # a blank photograph has nothing to attack
                continue

    publishing = Collection(training=WordTraining(DECOYS, seed=arguments.seed), held=WordTraining(2, seed=0))
    for _, _, item in described(owned[::2], "words and decoys"):
        Wanted(descriptor=name).require(item, publishing.space)
        publishing.add(item, every=0)
    own = [item for _, _, item in described(owned[1::2], "the attacker's")]
    attacked: dict[str, Features] = {}
    views: dict[str, Features] = {}
    for label, picture, item in described(victims[::2], "attacked"):
        try:
            views[label] = extract(second_view(picture), name, extraction_options(name, most), network)
        except InputError:
            continue
        attacked[label] = item
    others = {label: item for label, _, item in described(victims[1::2], "other uploads")}
    _require_apart([*attacked.values(), *others.values()], own, publishing)
    photographs = DescribedPhotographs(attacked=attacked, views=views, others=others, owned=own)
    sample = publishing.training.sample()
    assert publishing.space is not None  # there is a sample
    with Bar(f"{name}: clustering") as bar:
        made = books_of(
            sample,
            publishing.space,
            arguments.word_count,
            name="half of the attacker's photographs",
            image_digests=publishing.training.image_digests,
            seed=arguments.seed,
            progress=bar,
        )
    database = database_of(own, arguments.public, arguments.seed)
    books = StudyBooks(dictionary=made.codebook, decoys=made.decoys, database=database)
    about = {
        "descriptor": name,
        "dim": publishing.space.dim,
        "axes": len(books.dictionary.compression.require_pca().axes),
        "attacked": len(attacked),
        "others": len(others),
        "features": sum(map(len, attacked.values())) / max(len(attacked), 1),
        "words": len(books.dictionary),
        "decoys": len(books.decoys),
        "database": len(books.database),
    }
    return photographs, books, about


def _require_apart(victims: Sequence[Features], own: Sequence[Features], publishing: Collection) -> None:
    """Raise InputError if a photograph is both the attacker's and attacked."""
    known = {item.image_digest[:8].hex() for item in own} | set(publishing.training.image_digests)
    shared = sum(item.image_digest[:8].hex() in known for item in victims)
    if shared:
        raise InputError(f"{shared} photographs are both the attacker's and attacked; give others with --attacker")


def material_table(facts: Sequence[Mapping[str, Any]]) -> Table:
    """The table of what was attacked, and with what."""
    counts = ("attacked", "others", "words", "decoys", "database")
    heads = ("attacked", "other uploads", "words", "decoys", "database")
    return Table(
        columns=[Name("descriptor"), *numbers("numbers", "axes", "features each", *heads)],
        rows=[
            (
                item["descriptor"],
                str(item["dim"]),
                str(item["axes"]),
                f"{item['features']:,.0f}",
                *(f"{item[key]:,}" for key in counts),
            )
            for item in facts
        ],
    )


def reasons_of(rows: Sequence[DescriptorRow], named: Descriptors) -> dict[str, str]:
    """Letters for the reasons why attacks were not run, in the order in which the table meets them."""
    met = [why for row in _in_order(rows) if (why := _why(row))]
    left_out = [f"{name}: {why}" for name, why in named.left_out.items()]
    return {why: _letters(place) for place, why in enumerate(dict.fromkeys([*met, *left_out]))}


def compared_attacks(rows: Sequence[DescriptorRow], named: Descriptors, reasons: Mapping[str, str]) -> Table:
    """The table of the command: forms and attacks down, descriptors across, a dash with a letter where nothing was run."""
    columns = [*named.networks, *named.left_out]
    cells = {(row.form, row.attack, row.descriptor): _cell(row, reasons) for row in rows}
    for name, why in named.left_out.items():
        cells |= {(row.form, row.attack, name): f"- {reasons[f'{name}: {why}']}" for row in rows}
    lines = dict.fromkeys((row.form, row.attack) for row in _in_order(rows))
    return Table(
        columns=[Name("form"), Name("attack", least=20), *numbers(*columns)],
        rows=[(form, attack, *(cells[form, attack, name] for name in columns)) for form, attack in lines],
        labels=2,
    )


def _in_order(rows: Sequence[DescriptorRow]) -> list[DescriptorRow]:
    """Rows by form and attack, as the first descriptor has them."""
    place = {key: index for index, key in enumerate(dict.fromkeys((row.form, row.attack) for row in rows))}
    return sorted(rows, key=lambda row: place[row.form, row.attack])


def _cell(row: DescriptorRow, reasons: Mapping[str, str]) -> str:
    """The cell of one attack: shares in percent, or a dash with the letter of the reason."""
    score = row.finding.score
    if score is None or _why(row):
        return f"- {reasons[_why(row)]}"
    shown = ("identified",) if score.unit == "word" else ("within_0.1", "within_0.4")
    return "/".join(f"{100 * score.shares[name].value:.0f}" for name in shown)


def _why(row: DescriptorRow) -> str:
    """Why an attack was not run, in words that suit all descriptors; empty if it was."""
    why = row.finding.skipped.replace(repr(row.descriptor), "the descriptor")
    return why or ("" if row.finding.score is not None else "there are no originals to compare with")


def _letters(place: int) -> str:
    """The letter for a place: a to z, then aa, ab, ..."""
    return (_letters(place // 26 - 1) if place >= 26 else "") + chr(ord("a") + place % 26)

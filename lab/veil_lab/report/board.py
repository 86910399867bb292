"""The board: one table of all scenes and forms, the sentences that explain it, and the HTML page of both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from veil.report.page_templates import page_template
from veil.report.tables import Name, Number, Table, Words, fixed, numbers, percent
from veil.version import __version__
from veil_lab.studies.attacks.form_releases import GRAVITY_SIGMA_DEG
from veil_lab.studies.board.recovery import LEAST_PART, WITHIN
from veil_lab.studies.board.rows import BoardOptions, BoardRow, BoardScene, MapCounts, NotRun, RecoveredShare
from veil_lab.studies.board.study import ATTACKED, OTHERS, POSITION_SAMPLES, RUN_SECONDS
from veil_lab.studies.localization.answer_counts import LEVEL, WRONG_DEG, WRONG_SHARE, AnswerCounts

NONE = "-"
# Cells of a row between its scene and its note.
CELLS = 13


def board_table(scenes: Sequence[BoardScene]) -> Table:
    """The table: a row for each form of each scene, or one with the reason for a scene without rows."""
    columns = [
        Name("scene", least=8),
        Name("form", least=12),
        *numbers(
            "registered / by raw",
            "map off, %: median / largest",
            "localized",
            "wrong",
            "median error, %",
            "region holds",
            "1 upload, %",
            "5 uploads, %",
        ),
        Words("near repeats, %", least=12),
        Number("kB an image"),
        Number("map, s"),
        Number("query, s"),
        Words("note"),
    ]
    return Table(columns=columns, rows=list(_rows(scenes)), labels=2)


def _rows(scenes: Sequence[BoardScene]) -> Iterator[tuple[str, ...]]:
    """The cells of all rows; the last one is the note."""
    for scene in scenes:
        if not scene.rows:
            yield scene.scene, *[NONE] * CELLS, scene.reason
        yield from (_cells(scene.scene, row) for row in scene.rows)


def _cells(scene: str, row: BoardRow) -> tuple[str, ...]:
    """The cells of one row."""
    return (
        scene,
        row.form,
        *_map_cells(row.built),
        *_answer_cells(row.answers),
        _share(row.one, 1),
        _share(row.five, 1 + OTHERS),
        _repeats(row),
        NONE if row.upload_bytes is None else fixed(row.upload_bytes / 1e3, 0),
        fixed(row.built.seconds, 1) if isinstance(row.built, MapCounts) else NONE,
        NONE if row.query_seconds is None else fixed(row.query_seconds, 1),
        _note(row),
    )


def _map_cells(built: MapCounts | NotRun) -> tuple[str, str]:
    if isinstance(built, NotRun):
        return NONE, NONE
    off = NONE
    if built.median_error is not None:
        off = f"{percent(built.median_error, 2)} / {percent(built.largest_error, 2)}"
    return f"{built.registered} / {built.by_raw}", off


def _answer_cells(answers: AnswerCounts | NotRun) -> tuple[str, str, str, str]:
    if isinstance(answers, NotRun):
        return NONE, NONE, NONE, NONE
    return (
        f"{answers.localized} of {answers.queries}",
        str(answers.wrong),
        NONE if answers.median_error is None else percent(answers.median_error, 2),
        f"{answers.covered} of {answers.regions}" if answers.regions else NONE,
    )


def _share(recovered: RecoveredShare | NotRun, uploads: int) -> str:
    """A recovered share in percent, with that of named words, and the number of uploads if it is not the usual one."""
    if isinstance(recovered, NotRun):
        return NONE
    share = percent(recovered.share)
    if recovered.named is not None:
        share = f"{share}; {percent(recovered.named)} named"
    return share if recovered.uploads == uploads else f"{share} ({recovered.uploads} uploads)"


def _repeats(row: BoardRow) -> str:
    """The share from near repeats, or why these were not attacked where other uploads were."""
    if isinstance(row.near, NotRun):
        return NONE if isinstance(row.one, NotRun) else row.near.reason
    return _share(row.near, 0)


def _note(row: BoardRow) -> str:
    """The reasons for what is missing, each once; that for near repeats stands in their cell."""
    parts = (row.built, row.answers, row.one, row.five)
    return "; ".join(dict.fromkeys(part.reason for part in parts if isinstance(part, NotRun)))


def sentences(options: BoardOptions) -> list[str]:
    """Sentences that say what the columns are."""
    return [
        f"In the order of the SHA-256 of their names, one photograph in {options.queries_every} is a query; the others are "
        "mapped. A query without a reference pose is left out.",
        "Registered / by raw: images in the map of what is sent, beside those in the map of raw features. Map off: distance "
        "of its cameras from the reference after alignment, in percent of the extent of the reference's cameras.",
        "Mapped photographs are one folder of one device, which releases it by the defaults. In subspaces what a "
        "map of its raw features uses leaves, and nothing else. Words leave of each photograph by itself, and so does a query.",
        "Queries are asked on the raw map. Localized: a pose that is not wrong. Wrong: a center off by more than "
        f"{100 * WRONG_SHARE:g} % of the extent of the reference's cameras, or a turn of more than {WRONG_DEG:g} degrees.",
        f"Region holds: poses whose claimed {100 * LEVEL:g} % region holds the reference, of those that claim one. The region "
        "is that of the query on a map that is exact. Errors of map and reference are in the misses.",
        f"Attacks: percent of the attacked descriptors within {WITHIN:g} of their length by the best attack. It has one "
        f"upload, or those of the {OTHERS} nearest photographs beside it, or those of near repeats among them.",
        f"Attacked are queries, {ATTACKED} at most, and {options.features} features of each. The uploads beside them are those "
        "that the private map is made of, and other queries. Photographs of the map are not attacked here.",
        f"Attacks on one upload have {RUN_SECONDS:g} processor seconds together, and those that compare uploads as many again.",
        "An attack without time for all features runs on fewer of them, drawn at random. Below "
        f"{100 * LEAST_PART:g} % of the features it is not the best.",
        "The vertex attack is left out: it never recovered most (docs/choose.md).",
        "Named: percent of words that an attack names right, which gives a descriptor to the size of the word's cell.",
        "The attacker has all that is public, the raw map among it, and trained networks. It lacks the secret and the decoys.",
        "Near repeats are photographs that one affine map of the picture leads onto each other, half of their matches or more. "
        "The attacker knows this map.",
        f"Gravity that is sent with words and positions is off by |N(0, {GRAVITY_SIGMA_DEG:g} degrees)|. Positions alone are "
        f"asked near the two nearest mapped photographs, with {POSITION_SAMPLES:,} samples, a tenth of the default.",
        "Seconds are of the processor: of the map with its matching, and the median of all queries but the first.",
    ]


def scene_facts(scene: BoardScene) -> str:
    """What was taken of a scene, as a sentence."""
    if not scene.photographs:
        return f"{scene.scene}: nothing was measured."
    reference = "its own cameras are" if scene.has_reference else "it has none, so that the raw map of all photographs is"
    unjudged = f", and {scene.unjudged} without a reference pose" if scene.unjudged else ""
    gravity = "known" if scene.has_gravity else "not known"
    return (
        f"{scene.scene}: {scene.photographs} photographs, {scene.mapped} of them mapped, {scene.queries} asked{unjudged}. "
        f"Reference: {reference} taken. Gravity is {gravity}."
    )


def page(scenes: Sequence[BoardScene], options: BoardOptions) -> str:
    """The self-contained HTML page of the board; nothing in it is fetched. The note of a row stands below it."""
    *columns, _ = board_table(scenes).columns
    return page_template("board.html", package="veil_lab.report").render(
        version=__version__,
        heads=[(column.head, "number" if isinstance(column, Number) else "") for column in columns],
        rows=[(cells, note) for *cells, note in _rows(scenes)],
        sentences=sentences(options),
        scenes=[scene_facts(scene) for scene in scenes],
    )

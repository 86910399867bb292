"""The public Python interface: `import veil` is light, its names are documented, and its results equal the command line's."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import veil
from veil.cli import main
from veil.features import Features
from veil.files.device.home import home
from veil.files.device.ledger import read_ledger
from veil.files.photographs.examples import lund_door
from veil.forms import Subsets
from worlds.small_pictures import shrink

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "docs"))
from extensions.public_names import written

ROOT = Path(__file__).resolve().parents[1]

# The contract is the table of `veil/__init__.pyi`. A name leaves it only after a minor version in which it warns.
NAMES = sorted(set(veil.__all__) - {"__version__"})


def test_the_table_of_names_is_the_stub_that_type_checkers_read() -> None:
    """Second method: the stub as Python's own parser reads it, each name once and under its own name."""
    tree = ast.parse(Path(veil.__file__).with_suffix(".pyi").read_text())
    imported = [
        (alias.name, str(node.module)) for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    assert len(imported) == len(dict(imported)) and {f"veil.{home}" for home in veil._HOMES.values()} == {
        m for _, m in imported
    }
    assert {name: f"veil.{home}" for name, home in veil._HOMES.items()} == dict(imported)
    assert all(alias.asname == alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names)
    assert dir(veil) == sorted(veil.__all__)
    with pytest.raises(AttributeError, match=r"psychic.*veil\.__all__"):
        veil.psychic  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there_and_says_what_it_is(name: str) -> None:
    """A first line that stands alone, then every argument of a function and every field of a record by name."""
    value = getattr(veil, name)
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return
    text = inspect.getdoc(value) or ""
    first = text.split("\n\n")[0]
    assert re.match(r"[A-Z].*[.]", first, re.S), f"{name}: {first!r}"
    if dataclasses.is_dataclass(value) or inspect.isfunction(value) or value is veil.Device:
        arguments = [argument for argument in inspect.signature(getattr(veil, name)).parameters if not argument.startswith("_")]
        # Fields that a record inherits are documented where they are defined.
        said = text + "".join(inspect.getdoc(base) or "" for base in getattr(value, "__mro__", ())[1:-1])
        assert [argument for argument in arguments if f"`{argument}`" not in said] == []


@pytest.mark.parametrize("page", ["python", "api"])
def test_the_pages_of_the_public_names_are_those_of_the_table(page: str) -> None:
    """Second method: the pages as `docs/extensions/public_names.py` makes them of the table and the docstrings."""
    path = ROOT / "docs" / "reference" / f"{page}.md"
    assert path.read_text() == written(path), "run: python docs/extensions/public_names.py"


def test_the_door_is_light() -> None:
    """Nothing heavy before it is used, and a message can be read without any of it but NumPy."""
    heavy = ("pycolmap", "faiss", "numba", "llvmlite", "torch", "cv2", "scipy", "matplotlib", "h5py", "numpy")
    code = f"import sys, veil; print([name for name in {heavy} if name in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "[]"


def example(language: str) -> str:
    """The private pose of the README in a language, as it is printed there."""
    section = (
        (ROOT / "README.md").read_text().partition("\n## A pose without sending the photograph\n")[2].partition("\n## ")[0]
    )
    (code,) = re.findall(rf"```{language}\n(.*?)```", section, re.S)
    return code


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of somebody with photographs: nine small ones in `photos`, and one of those held out as `photo.jpg`.

    As phones do, each notes its focal length as that of 35 mm film.
    """
    with lund_door() as place:
        first = place.folder / place.held_out[1]
        rest = [path for path in sorted(place.folder.glob("*.jpg")) if path.name not in place.held_out]
        (tmp_path / "photos").mkdir()
        film_mm = round(36 * place.camera.focal_px / max(place.camera.width_px, place.camera.height_px))
        for photo, target in [(first, tmp_path / "photo.jpg"), *((photo, tmp_path / "photos" / photo.name) for photo in rest)]:
            shrink(photo, target, film_mm=film_mm)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def statements(code: str) -> list[str]:
    return [line for line in code.splitlines() if line.strip() and not line.lstrip().startswith(("#", "import ", "from "))]


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked", "photos")
def test_the_python_of_the_readme_gives_a_private_pose() -> None:
    """Seven statements, at most seven functions and classes of veil, which alone is imported beside `pathlib`."""
    code = example("python")
    assert len(statements(code)) == 7 and len(set(re.findall(r"veil\.[\w.]+", code))) <= 7
    modules = re.findall(r"^(?:import|from) (\S+)", code, re.M)
    assert set(modules) == {"pathlib", "veil"}
    known: dict = {}
    exec(compile(code, "README.md", "exec"), known)
    assert isinstance(known["answer"], veil.Localization) and known["answer"].inliers > 100
    assert len(read_ledger(home() / "ledger.sqlite")) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_the_shell_of_the_readme_gives_a_private_pose(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Six commands: each ends with exit code 0, and the last one prints a pose."""
    lines = statements(example("sh"))
    assert len(lines) == 6
    for line in lines:
        name, *words = shlex.split(line, comments=True)
        expanded = [str(path) for word in words for path in (photos.glob(word) if "*" in word else [word])]
        assert name == "veil" and main(expanded) == 0, line
    assert "camera center" in capsys.readouterr().out


def test_the_readme_is_one_screen() -> None:
    """At most 6 kB, with one picture and two commands in one block."""
    text = (ROOT / "README.md").read_text()
    assert len(text.encode()) <= 6000 and text.count("![") == 1
    block = text.partition("\n## Two commands\n")[2].partition("```sh\n")[2].partition("```")[0]
    assert len(block.strip().splitlines()) == 2


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, door: dict[str, Features]) -> Path:
    """Six photographs as a file of features."""
    folder = tmp_path_factory.mktemp("place")
    veil.write_features(folder / "f.h5", list(door.items()))
    return folder


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_python_and_the_command_line_give_the_same(place: Path, door: dict[str, Features], tmp_path: Path) -> None:
    """Second method: release, map, pose and audit through the library, and through the commands.

    All to the last digit, but for the map: COLMAP's threads add in an order of their own.
    """
    first, *rest = door
    device = veil.Device()
    sent = {name: device.release(features, name=name, purpose="map") for name, features in door.items()}
    assert run("privatize", place / "f.h5", "-o", tmp_path / "up", "--for", "map") == 0
    for item in sent.values():
        assert (tmp_path / "up" / f"{item.released_as}.veil").read_bytes() == item.message
    assert len(read_ledger(home() / "ledger.sqlite")) == len(door)

    veil.write_features(tmp_path / "rest.h5", [(name, door[name]) for name in rest])
    assert run("map", tmp_path / "rest.h5", "-o", tmp_path / "map", "--json", tmp_path / "map.json") == 0
    built = veil.map_images({name: door[name] for name in rest})
    assert isinstance(built, veil.BuiltMap)
    told = json.loads((tmp_path / "map.json").read_text())
    assert built.check is not None and told["points"] == pytest.approx(len(built.map.scene.points), rel=0.02)
    assert set(told["check"]) == set(mine := dict(built.check.as_json()))
    for name, value in told["check"].items():
        assert value == (pytest.approx(mine[name], rel=0.02) if isinstance(value, float) else mine[name])

    query = tmp_path / "up" / f"{sent[first].released_as}.veil"
    assert run("localize", tmp_path / "map", query, "--json", tmp_path / "pose.json") == 0
    (row,) = json.loads((tmp_path / "pose.json").read_text())["queries"]
    (upload,) = veil.read_messages(query).values()
    answer = veil.localize(upload, veil.Map.read(tmp_path / "map"))
    assert isinstance(answer, veil.Localization)
    assert row["cam_from_world"]["translation"] == answer.cam_from_world.translation.tolist()
    assert (row["inliers"], row["log10_nfa"]) == (answer.inliers, answer.log10_nfa)

    choices = ("--attacked-features", 1, "--max-seconds", 0, "--pictures", 0)
    originals = ("--images", place / "f.h5", "--map", tmp_path / "map")
    assert run("audit", query, *originals, *choices, "-o", tmp_path / "a.html", "--json", tmp_path / "a.json") == 0
    options = veil.AuditOptions(features=1, seconds=np.inf)
    attacker = veil.Attacker(where=veil.Map.read(tmp_path / "map"))
    audited = veil.run_audit({query.stem: upload}, originals=door, attacker=attacker, options=options)
    record = json.loads(json.dumps(audited.as_json()))
    by_command = json.loads((tmp_path / "a.json").read_text())
    for mine, theirs in zip(record["attacks"], by_command["attacks"], strict=True):
        assert {**mine, "seconds": 0} == {**theirs, "seconds": 0}
    assert record["verdict"] == by_command["verdict"]
    best = audited.recovered[query.stem]
    (finding,) = (item for item in audited.findings if item.attack == best.attack)
    assert list(audited.originals) == [query.stem] and audited.originals[query.stem] in door and finding.score is not None
    np.testing.assert_array_equal(best.errors, finding.score.errors)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_one_door_for_words_lines_and_raw_features(door: dict[str, Features]) -> None:
    """The map finds its own index and codebook; what cannot be compared is refused."""
    first, *rest = door
    built = veil.map_images({name: door[name] for name in rest})
    assert isinstance(built, veil.BuiltMap)
    device = veil.Device()
    in_words = veil.Protection(descriptors=veil.HideInWords(epsilon=12.0))
    upload = device.release(door[first], in_words, name=first).upload
    assert isinstance(upload.form, Subsets)
    hidden = veil.Protection(descriptors=veil.HideInSubspaces(), lines=veil.HideInLines())
    lines = device.release(door[first], hidden, name=first, allow_second=True).upload
    poses = [veil.localize(query, built.map) for query in (door[first], upload, lines)]
    assert all(isinstance(pose, veil.Localization) for pose in poses)
    centers = np.array([pose.cam_from_world.center for pose in poses if isinstance(pose, veil.Localization)])
    assert np.linalg.norm(centers - centers[0], axis=1).max() < 0.05 * built.map.scene.extent
    other = veil.HideInWords(epsilon=12.0, dictionary=_another())
    foreign = device.release(door[first], veil.Protection(descriptors=other), name=first, allow_second=True).upload
    with pytest.raises(veil.InputError, match="no index for it"):
        veil.localize(foreign, built.map)


def test_an_audit_of_nothing_is_refused() -> None:
    with pytest.raises(veil.InputError, match="no release to attack"):
        veil.run_audit({})


def _another() -> veil.Codebook:
    from veil.files.codebooks import bundled_codebook

    book = bundled_codebook()
    return replace(book, stored=book.stored[:1000], slices=1)


@pytest.mark.slow
def test_a_device_cannot_forget_its_ledger(door: dict[str, Features], tmp_path: Path) -> None:
    """A second, different release is refused, and nothing is entered; the same one is the same bytes; a budget holds."""
    features = next(iter(door.values()))
    device = veil.Device(tmp_path / "one")
    assert "a new client secret was made" in device.notes[0] and (tmp_path / "one" / "secret").stat().st_mode & 0o77 == 0
    first = device.release(features, name="a.jpg", purpose="map")
    assert veil.Device(tmp_path / "one").release(features, purpose="map").message == first.message
    paper = veil.Protection(descriptors=veil.HideInSubspaces(profile=veil.Profile.paper(4)))
    words = veil.Protection(descriptors=veil.HideInWords(epsilon=2.0))
    for second in (paper, words, veil.Protection(descriptors=veil.HideInSubspaces(), lines=veil.HideInLines())):
        with pytest.raises(veil.ReleaseRefused, match=r"a\.jpg was already released|already released with other choices"):
            device.release(features, second, name="a.jpg")
    with pytest.raises(veil.ReleaseRefused, match="drawn afresh"):
        device.release(features, name="a.jpg", fresh=True, purpose="map")
    assert len(device.ledger.entries()) == 1
    device.set_budget(veil.Budget(unit="image", epsilon=1.0, delta=1e-6))
    with pytest.raises(veil.ReleaseRefused, match="the budget of each image is epsilon 1"):
        device.release(list(door.values())[1], words, name="b.jpg")
    assert len(device.ledger.entries()) == 1 and set(device.budgets()) == {"image"}
    device.clear_budget("image")
    # Words made from a photograph are all but its descriptors: refused for it, and for all others once it is known.
    book = veil.HideInWords(epsilon=2.0).book
    made_of = replace(book.provenance, image_digests=(features.image_digest[:8].hex(),))
    own = veil.Protection(descriptors=veil.HideInWords(epsilon=2.0, dictionary=replace(book, provenance=made_of)))
    for name, item in (("a.jpg", features), ("b.jpg", list(door.values())[1])):
        with pytest.raises(veil.ReleaseRefused, match=r"made from 1 of your own photographs \(a\.jpg"):
            device.release(item, own, name=name, allow_second=True)
    assert len(device.ledger.entries()) == 1
    assert len(device.release(list(door.values())[1], words, name="b.jpg").upload) > 0


def test_a_message_hides_what_it_should(door: dict[str, Features]) -> None:
    """Inverse pair: what the device encodes is what the server decodes."""
    device = veil.Device()
    first, second = (
        device.release(features, protection)
        for features, protection in zip(
            door.values(),
            (
                veil.Protection(descriptors=veil.HideInSubspaces()),
                veil.Protection(descriptors=veil.HideInWords(epsilon=3.0)),
            ),
            strict=False,
        )
    )
    lifted, words = (veil.decode(release.message) for release in (first, second))
    assert isinstance(lifted, veil.Upload) and isinstance(lifted.form.guarantee, veil.NoProof)
    assert isinstance(words.form.guarantee, veil.LocalDP) and words.form.guarantee.epsilon == 3.0
    assert veil.encode(words) == second.message


def doors() -> list[tuple[str, Callable[..., Any], str]]:
    """Public functions and constructors that take a path: name, callable, and the parameter."""
    parameters: list[tuple[str, Callable[..., Any], str]] = []
    for name in NAMES:
        value = getattr(veil, name)
        if inspect.isfunction(value):
            members = [(name, value)]
        elif inspect.isclass(value) and not issubclass(value, Exception):
            own = [key for key in vars(value) if key == "__init__" or not key.startswith("_")]
            # A record is given what a door has read; its own fields are no door.
            members = [(f"{name}.{key}", getattr(value, key)) for key in own if inspect.isfunction(getattr(value, key))]
            members = [item for item in members if not (dataclasses.is_dataclass(value) and item[0].endswith("__init__"))]
        else:
            continue
        for told, function in members:
            for parameter in inspect.signature(function).parameters.values():
                if re.search(r"\bPath\b", str(parameter.annotation)):
                    parameters.append((told, function, parameter.name))
    return parameters


def test_every_door_takes_a_path_as_text(tmp_path: Path) -> None:
    """The signatures say so. What is not there is refused alike for both, by veil's own error, where a path is all it takes."""
    assert len(doors()) >= 15
    texts = {f"{told} {name}": str(inspect.signature(function).parameters[name].annotation) for told, function, name in doors()}
    assert [door for door, text in texts.items() if "str" not in text] == []
    tried = 0
    for told, function, name in doors():
        needed = [item.name for item in inspect.signature(function).parameters.values() if item.default is item.empty]
        several = inspect.signature(function).parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        if needed != [name] or several or "Sequence" in texts[f"{told} {name}"]:
            continue
        refusals = []
        for path in (tmp_path / "nothing", str(tmp_path / "nothing")):
            with pytest.raises(veil.VeilError) as refused:
                result = function(path)
                list(result)  # a generator opens its file at the first item
            refusals.append((type(refused.value), str(refused.value)))
        assert refusals[0] == refusals[1], told
        tried += 1
    assert tried >= 5


def test_every_command_has_its_python_name_or_is_said_to_have_none() -> None:
    """Oracle: the headings of cli.md, which a test of its own compares with the parsers; and the table of public names."""
    page = (ROOT / "docs" / "reference" / "python.md").read_text().partition("## Commands")[2].partition("## Names")[0]
    commands = re.findall(r"^## veil (.+)$", (ROOT / "docs" / "reference" / "cli.md").read_text(), re.MULTILINE)
    rows = [row.split("|")[1:3] for row in page.splitlines() if row.startswith("| `")]
    told = {name for left, _ in rows for name in re.findall(r"`veil ([^`]+)`", left)}
    alone = set(re.findall(r"`(?:veil )?([^`]+)`", page.rpartition("|")[2]))
    groups = tuple(name.removesuffix("...") for name in told if name.endswith("..."))
    missing = [name for name in commands if name not in told | alone and not f"{name} ".startswith((*groups, "serve "))]
    assert len(commands) > 30 and missing == []
    for _, right in rows:
        for name in re.findall(r"`([A-Za-z_.]+)`", right):
            first, _, member = name.partition(".")
            assert first in veil.__all__ and (not member or member == "ledger" or hasattr(getattr(veil, first), member)), name

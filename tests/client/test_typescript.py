"""The client in TypeScript: its vectors are Python's, its built copy is that of its sources, and it works with a real server.

Its own tests (`clients/typescript/tests`, for `node --test`) run on the built copy that the package holds. Without Node.js they
are skipped, and the rebuild without its compiler too (`npm ci` in `clients/typescript`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from veil.cli import main
from veil.codebooks.compression import fit_pca
from veil.codebooks.dictionary import Dictionary
from veil.device.device import Device
from veil.device.protection import HideInWords, Protection
from veil.features import Features
from veil.files.codebooks import bundled_codebook, write_codebook
from veil.files.features import write_features
from veil.files.service.shipped import page_files
from veil.ldp.composition import composed_epsilon
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.release import privatize_words
from veil.randomness import memoized
from veil.server.service import Service
from veil.server.settings import ServerSettings
from veil.wire import encode
from worlds.places import PLACE
from worlds.releases import taken
from worlds.servers import Running, messages_of, running
from worlds.typescript import PATH, dictionary, image, vectors
from worlds.typescript_messages import SECRET
from worlds.typescript_package import CLIENT, COPY, NODE, package, ran

__all__ = ["package"]

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "geopose" / "request.json"
CODEBOOK = Path(str(files("veil"))) / "data" / "codebook-sift-l2.npz"
COMPILER = CLIENT / "node_modules" / "typescript" / "bin" / "tsc"
HASHES = "@noble/hashes"
EPSILON = 12.0
# Files of tests that need a server: others start it.
OF_SERVERS = ("service.test.js", "tile_servers.test.js")


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.slow
def test_the_vectors_are_what_python_computes() -> None:
    """Golden file with its formula: `worlds.typescript` computes it anew. Broken twin: a file with one digit changed."""
    kept, computed = PATH.read_text(), vectors()
    assert kept == computed, "run `python -m worlds.typescript` in tests/, if the protocol was meant to change"
    assert kept.replace("7", "8", 1) != computed


def test_the_built_copy_is_of_these_sources() -> None:
    """`built.json` holds the digest of every source that was compiled, and the copy a module of every one and no others."""
    sources = CLIENT / "src"
    built = json.loads((CLIENT / "built.json").read_text())
    present = {path.relative_to(sources).as_posix(): path for path in sources.rglob("*.ts")}
    digests = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in present.items()}
    version = built.pop(HASHES)
    assert built == digests, "run `npm run build` in clients/typescript, and commit what it writes"
    modules = {path.relative_to(COPY).as_posix() for path in COPY.rglob("*") if path.is_file()}
    assert {name for name in modules if "digests/" not in name} == {name.removesuffix(".ts") + ".js" for name in present}
    locked = json.loads((CLIENT / "package-lock.json").read_text())["packages"][f"node_modules/{HASHES}"]["version"]
    assert version == locked == json.loads((CLIENT / "package.json").read_text())["dependencies"][HASHES]
    assert f"{HASHES} {version} (MIT)" in (CLIENT.parents[1] / "NOTICE").read_text()


def test_the_built_copy_is_whole_and_small() -> None:
    """Every import leads to a module of the copy, and each module of `digests/` is reached; these have at most 64 KiB."""
    left, reached = [COPY / "index.js"], set()
    while left:
        path = left.pop()
        if path not in reached:
            reached.add(path)
            imported = re.findall(r"""(?:from|import) ?\(?["']([^"']+)["']""", path.read_text())
            assert all(name.startswith("./") or name.startswith("../") for name in imported), path
            left += [(path.parent / name).resolve() for name in imported]
    served = page_files()
    assert all(path.relative_to(COPY.parent).as_posix() in served for path in reached), "a browser gets all of them"
    vendored = set((COPY / "digests").iterdir())
    assert vendored <= reached and sum(path.stat().st_size for path in vendored) < 64 << 10


@pytest.mark.slow
def test_building_again_gives_the_same_bytes(tmp_path: Path) -> None:
    if NODE is None or not COMPILER.is_file():
        pytest.skip("TypeScript's compiler is not installed: `npm ci` in clients/typescript")
    subprocess.run([NODE, CLIENT / "build.mjs", tmp_path / "copy"], check=True)
    made = {path.relative_to(tmp_path / "copy"): path.read_bytes() for path in (tmp_path / "copy").rglob("*.js")}
    assert made == {path.relative_to(COPY): path.read_bytes() for path in COPY.rglob("*.js")}


@pytest.mark.slow
def test_the_examples_of_its_readme_compile(tmp_path: Path) -> None:
    """The compiler accepts each example with the sources' own types. Broken twins: a name that does not exist."""
    if NODE is None or not COMPILER.is_file():
        pytest.skip("TypeScript's compiler is not installed: `npm ci` in clients/typescript")
    examples = re.findall(r"```ts\n(.*?)```", (CLIENT / "README.md").read_text(), flags=re.DOTALL)
    assert len(examples) == 4
    paths = {"veil-client": [str(CLIENT / "src" / "index.ts")]}
    options = {"noEmit": True, "paths": paths, "rootDir": "/", "typeRoots": []}
    for folder, given in (("whole", examples), ("broken", [example.replace("await", "awaits", 1) for example in examples])):
        (tmp_path / folder).mkdir()
        for number, example in enumerate(given):
            (tmp_path / folder / f"{number}.ts").write_text(example)
    settings = {"extends": str(CLIENT / "tsconfig.json"), "compilerOptions": options, "include": [f"{tmp_path}/*/*.ts"]}
    (tmp_path / "tsconfig.json").write_text(json.dumps(settings))
    command: list[str | Path] = [NODE, COMPILER, "--project", tmp_path, "--pretty", "false"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    refused = set(re.findall(r"^(\S+?)\(\d+,\d+\): error", done.stdout, re.MULTILINE))
    assert done.returncode != 0 and refused == {f"broken/{number}.ts" for number in range(len(examples))}, done.stdout


@pytest.mark.slow
def test_its_own_tests(package: Path, tmp_path: Path) -> None:
    """Digests, draws, law, codec, search, device, receipts, requests; and a release with the bundled dictionary is Python's."""
    book, features = bundled_codebook(), image()
    law = SubsetMechanism(dictionary_size=len(book), epsilon=6.0, m=2)
    made = privatize_words(features, mechanism=law, dictionary=book, randomness=memoized(SECRET), features_sent=10)
    release = {
        "features": [text(features.keypoints.astype("<f4").tobytes()), text(features.descriptors.tobytes())],
        "digest": features.image_digest.hex(),
        "params": features.camera.params,
        "key": SECRET.key.hex(),
        "bytes": encode(made.upload).hex(),
    }
    (tmp_path / "release.json").write_text(json.dumps(release))
    names = sorted(path.name for path in (CLIENT / "tests").glob("*.test.js") if path.name not in OF_SERVERS)
    write_codebook(tmp_path / "small.npz", dictionary(floats=True))
    write_codebook(tmp_path / "columns.npz", columns_first(dictionary(floats=True)))
    files = {"VEIL_SMALL": "small.npz", "VEIL_COLUMNS": "columns.npz", "VEIL_RELEASE": "release.json"}
    given = {"VEIL_CODEBOOK": CODEBOOK, **{name: tmp_path / file for name, file in files.items()}}
    told = ran(package, *names, **given)
    assert len(names) >= 9 and "# SKIP" not in told


def columns_first(book: Dictionary) -> Dictionary:
    """The book with a PCA, as `veil codebook build` fits it: NumPy writes such arrays column by column."""
    made = replace(book, stored=np.asfortranarray(book.stored), pca=fit_pca(book.vectors, 8))
    assert made.pca is not None and made.stored.flags.f_contiguous and made.pca.axes.flags.f_contiguous
    return made


@pytest.fixture(scope="module")
def server(door: dict[str, Features], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, dict[str, str]]]:
    """A server with maps of four images: of hardened messages with a place on Earth, and public for words."""
    folder = tmp_path_factory.mktemp("service")
    shown = dict(list(door.items())[1:-1])
    write_features(folder / "shown.h5", shown.items())
    assert main(["map", str(folder / "shown.h5"), "-o", str(folder / "map")]) == 0
    service = Service(folder / "store", ServerSettings(workers=1, map_workers=1))
    words = service.import_map("words", folder / "map").id
    with running(service) as server:
        maps = {name: server.ask("POST", "/v1/maps", value={"name": name}).value["map"] for name in ("door", "empty")}
        for message in messages_of(shown, Device(folder / "mapper")).values():
            job = server.ask("POST", f"/v1/maps/{maps['door']}/contributions", body=message).value["job"]
        assert server.done(job)["state"] == "done"
        assert server.ask("PUT", f"/v1/maps/{maps['door']}/place", value=PLACE).status == 200
        yield server, {**maps, "words": words}


@pytest.mark.slow
def test_it_works_with_a_real_server(
    package: Path, server: tuple[Running, dict[str, str]], door: dict[str, Features], elsewhere: Features, tmp_path: Path
) -> None:
    """Oracles: poses that the server gives Python for the same bytes; the message that Python's device makes of the same image.

    The request of the GeoPoseProtocol validates against its schema.
    """
    host, maps = server
    features = list(door.values())[-1]
    device = Device(tmp_path / "device")
    query, away = (messages_of({"query": item}, device)["query"] for item in (features, elsewhere))
    extra = messages_of({"extra": taken(features, np.arange(50))}, Device(tmp_path / "another"))["extra"]
    height, width = features.camera.height_px, features.camera.width_px
    secret = device._secret.key
    described: dict[str, Any] = {
        "url": host.url,
        "token": host.admin,
        "map": maps["door"],
        "empty": maps["empty"],
        "words": maps["words"],
        "query": text(query),
        "elsewhere": text(away),
        "extra": text(extra),
        "release": {
            "secret": secret.hex(),
            "epsilon": EPSILON,
            "codebook": str(CODEBOOK),
            "features": {
                "keypoints": text(features.keypoints.astype("<f4").tobytes()),
                "descriptors": text(features.descriptors.tobytes()),
                "digest": features.image_digest.hex(),
                "size": [width, height],
                "model": features.camera.model,
                "params": features.camera.params,
            },
        },
    }
    (tmp_path / "service.json").write_text(json.dumps(described))
    ran(package, "service.test.js", VEIL_SERVICE=tmp_path / "service.json", VEIL_FOUND=tmp_path / "found.json")
    said = json.loads((tmp_path / "found.json").read_text())

    def answered(map_id: str, message: bytes) -> dict[str, Any]:
        return host.ask("POST", f"/v1/maps/{map_id}/localize", body=message).value

    expected = answered(maps["door"], query)
    assert said["localized"]["camFromWorld"] == expected["cam_from_world"]
    assert said["localized"]["geopose"] == expected["geopose"]
    protection = Protection(descriptors=HideInWords(epsilon=EPSILON))
    ours = device.release(features, protection, allow_second=True)
    assert said["message"] == text(ours.message), "the same secret gives the same message"
    words = answered(maps["words"], ours.message)
    assert words["status"] == said["words"]["status"] == "localized"
    assert said["words"]["evidence"]["inliers"] == words["evidence"]["inliers"] >= 20
    law = SubsetMechanism(dictionary_size=len(bundled_codebook()), epsilon=EPSILON, m=2)
    assert said["imageEpsilon"] == pytest.approx(composed_epsilon({law: len(features)}, 1e-6), rel=1e-9)
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(said["request"])

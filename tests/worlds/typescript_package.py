"""The client in TypeScript as npm would install it, and its tests run by Node.js."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

CLIENT = Path(__file__).parents[2] / "clients" / "typescript"
COPY = Path(str(files("veil"))) / "server" / "static" / "client"
NODE = shutil.which("node")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as npm would install it, with the built copy that veil ships, and its tests."""
    if NODE is None:
        pytest.skip("Node.js is not installed")
    if int(subprocess.run([NODE, "--version"], capture_output=True, text=True, check=True).stdout[1:].split(".")[0]) < 20:
        pytest.skip("the client needs Node.js 20")
    folder = tmp_path_factory.mktemp("typescript")
    shutil.copytree(COPY, folder / "dist")
    shutil.copytree(CLIENT / "tests", folder / "tests")
    shutil.copy(CLIENT / "package.json", folder)
    return folder


def ran(package: Path, *names: str, **environment: Path) -> str:
    """The output of `node --test` for some files; fails if a test fails or none ran."""
    assert NODE is not None
    command = [NODE, "--test", *(str(package / "tests" / name) for name in names)]
    given = {name: str(path) for name, path in environment.items()}
    done = subprocess.run(command, capture_output=True, text=True, cwd=package, env={**os.environ, **given}, timeout=300)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "\n# fail 0" in done.stdout and "\n# pass 0" not in done.stdout
    return done.stdout

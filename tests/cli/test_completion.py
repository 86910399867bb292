"""Completion in real shells, against the parsers themselves."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

import pytest

from veil.cli import _parser, main
from veil.cli.completion import completed


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    return _parser()


def shell(name: str, program: str) -> list[str]:
    """The words that a shell prints for a program of it; skipped where it is not installed."""
    if shutil.which(name) is None:
        pytest.skip(f"needs {name}")
    options = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[name]
    done = subprocess.run([name, *options, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stderr == "", done.stderr
    return done.stdout.split("\n")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The script of each shell, as the command prints it."""
    folder = tmp_path_factory.mktemp("completion")
    paths = {}
    for name in SHELLS:
        with pytest.MonkeyPatch.context() as patch:
            printed: list[str] = []
            patch.setattr("builtins.print", lambda text, end="", to=printed: to.append(text))
            assert main(["completion", name]) == 0
        paths[name] = folder / f"veil.{name}"
        paths[name].write_text("".join(printed))
    return paths


SHELLS = ("bash", "zsh", "fish")
# What stands on the line, the last word being completed, and words that are offered and that are not.
CASES = [
    (["ext"], {"extract"}, {"privatize"}),
    (["map", "re"], {"remove"}, {"align"}),
    (["map", "remove", "--ma"], {"--matches"}, {"--mapper"}),
    (["map", "--mapper", ""], {"incremental", "global"}, {"remove"}),
    (["tiles", ""], {"cut", "plan"}, {"tiles", "remove"}),
    (["tiles", "cut", "--by"], {"--bytes"}, {"--mbit"}),
    (["client", "map", "list", "--tok"], {"--token-file"}, {"--accepts"}),
    (["budget", ""], {"plan", "set", "show"}, {"extract"}),
    (["budget", "set", "--de"], {"--delta"}, {"--camera"}),
    (["gravity", "--from", "ex"], {"exif"}, {"colmap"}),
    (["no-such", "--m"], set(), {"--m", "--map"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("words", "offered", "others"), CASES, ids=[" ".join(case[0]) for case in CASES])
def test_bash_offers_what_the_parsers_take(
    scripts: dict[str, Path], words: list[str], offered: set[str], others: set[str]
) -> None:
    line = " ".join(f"'{word}'" for word in ["veil", *words])
    program = (
        f"source {scripts['bash']}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _veil; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    completions = set(shell("bash", program))
    assert offered <= completions and not others & completions


@pytest.mark.slow
@pytest.mark.parametrize(("words", "offered", "others"), CASES, ids=[" ".join(case[0]) for case in CASES])
def test_fish_offers_what_the_parsers_take(
    scripts: dict[str, Path], words: list[str], offered: set[str], others: set[str]
) -> None:
    program = f"source {scripts['fish']}; complete -C 'veil {' '.join(words)}'"
    completions = {line.partition("\t")[0] for line in shell("fish", program)}
    assert offered <= completions and not others & completions


@pytest.mark.slow
def test_zsh_takes_the_script(scripts: dict[str, Path]) -> None:
    program = f"autoload -U +X compinit && compinit -u -D; source {scripts['zsh']}; print $_comps[veil]"
    assert any("_veil" in line for line in shell("zsh", program))


@pytest.mark.slow
def test_no_command_and_no_option_is_left_out(parser: argparse.ArgumentParser) -> None:
    """Second method: the walk of tests/cli/test_cli.py through the same parsers."""
    from test_cli import leaves

    known = {item.words: item for item in completed(parser)}
    for name, leaf in leaves(parser):
        item = known[name.removeprefix("veil ")]
        group = [known["client"]] if name.startswith("veil client ") else []
        above = {name for item in group for option in item.options for name in option.names}
        assert {name for option in item.options for name in option.names} == above | {
            word for action in leaf._actions for word in action.option_strings
        }
    assert {name for name, _ in known["map"].further} == {"import", "remove", "align"}

"""Which processor time does a command take before it does anything, and which libraries does it load for that?

    python lab/benchmarks/startup.py

Prints, for `veil --version`, `veil --help` and the `--help` of every command, the least processor time (user and system) of
three processes, beside that of an interpreter that does nothing, and the heavy libraries that a process had loaded at its
end.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from veil.cli import _parser
from worlds.heavy import HEAVY

PROCESSES = 3
CODE = f"""
import contextlib, io, sys
from veil.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main(sys.argv[1:])
import resource
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, *[name for name in {("numpy", *HEAVY)!r} if name in sys.modules])
"""
NOTHING = "import resource; used = resource.getrusage(resource.RUSAGE_SELF); print(used.ru_utime + used.ru_stime)"


def commands(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The words of every command that does something."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        return [words]
    return [
        words_of for action in below for word, child in action.choices.items() for words_of in commands(child, (*words, word))
    ]


def measured(code: str, *words: str) -> tuple[float, list[str]]:
    """The least processor time of some processes, seconds, and what the last of them had loaded."""
    seconds, loaded = [], []
    for _ in range(PROCESSES):
        run = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
        first, *loaded = run.stdout.split()
        seconds.append(float(first))
    return min(seconds), loaded


def main() -> None:
    """Print the table."""
    print(f"{'interpreter alone':32} {measured(NOTHING)[0]:6.2f} s")
    for words in [("--version",), ("--help",), *((*words, "--help") for words in commands(_parser()))]:
        seconds, loaded = measured(CODE, *words)
        print(f"{'veil ' + ' '.join(words):32} {seconds:6.2f} s  {' '.join(loaded)}")


if __name__ == "__main__":
    main()

"""argv -> calls; prints; exit codes. No mathematics."""

from __future__ import annotations

import argparse
import importlib
import sys

from veil import __version__
from veil.cli.common import notes, printable
from veil.errors import VeilError
from veil.threads import settle

EXIT_OK, EXIT_ERROR, EXIT_USAGE, EXIT_NO_POSE, EXIT_POLICY = 0, 1, 2, 3, 4
EXIT_NO_GRAVITY = EXIT_NO_POSE  # both: nothing went wrong, and for some photograph there is no answer

DESCRIPTION = """\
veil lets cameras localize and map through a server that cannot see what they saw.

What leaves the device in place of a descriptor is an affine subspace that contains it among decoys, which is an
obfuscation without proof, or a few random words of a public dictionary, with an epsilon for each feature that a ledger adds up.
`veil inspect` says what a release contains and what it does not protect.
"""

EXAMPLES = """\
examples:
  veil demo                                    the whole path on bundled photographs, with a report
  veil extract photos/ -o features.h5          features that stay on the device
  veil privatize features.h5 -o upload/        what may leave it
  veil budget show                             what was spent of epsilon
  veil map upload/ -o map/                     on the server: a map from private uploads
  veil localize map/ upload/3f2a....veil       on the server: a pose, or a reason why there is none
  veil audit upload/ --images features.h5      what the server can see: every known attack on your own upload

exit codes: 0 done, 1 failed (the message says what to do), 2 wrong usage, 3 no pose or gravity found,
4 an audit broke a rule
"""


# The commands that each module of this package registers, in the order of --help.
MODULES: dict[str, tuple[str, ...]] = {
    "extract": ("extract",),
    "privatize": ("privatize",),
    "budget": ("budget",),
    "gravity": ("gravity",),
    "codebook": ("codebook",),
    "server": ("match", "map"),
    "index": ("index",),
    "localize": ("localize",),
    "inspect": ("inspect",),
    "audit": ("audit",),
    "faces": ("faces",),
    "inversion": ("inversion",),
    "evaluate": ("evaluate",),
    "demo": ("demo",),
    "doctor": ("doctor",),
}
NAMES = frozenset(name for words in MODULES.values() for name in words)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    settle()
    given = sys.argv[1:] if argv is None else argv
    parser = _parser(given[0] if given else None)
    arguments = parser.parse_args(given)
    if not hasattr(arguments, "run"):
        parser.print_help()
        return EXIT_USAGE
    try:
        with notes():
            return int(arguments.run(arguments))
    except VeilError as error:
        print(printable(f"veil: {error}"), file=sys.stderr)
        return EXIT_ERROR
    except BrokenPipeError:
        return EXIT_OK
    except OSError as error:  # a full disk, a missing permission
        print(printable(f"veil: {error}; make room or choose another place"), file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        print("veil: interrupted; nothing was left half-written", file=sys.stderr)
        return 130


def _parser(first: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands, or of one if the `first` word names it: the others would load what it does not need."""
    parser = argparse.ArgumentParser(
        prog="veil", description=DESCRIPTION, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"veil {__version__}")
    if first == "--version":
        return parser
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for module in [name for name, words in MODULES.items() if first in words or first not in NAMES]:
        importlib.import_module(f"veil.cli.{module}").register(commands)
    return parser

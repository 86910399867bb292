"""The command line: parses arguments, calls the library, prints, and returns exit codes.

One command a file, in groups: `device/`, `server/`, `privacy/` and `codebook/`; `demo`, `doctor`, `view` and `completion` stand
here. All share `common` (parsers, exit codes), `records` (options as records, of which parsers are made), `progress` (bars),
`engine_arguments` (--engine), `input_options` (which options apply to which inputs) and `remedies` (errors become sentences
with flags).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING

from veil.cli.common import EXIT_ERROR, EXIT_OK, EXIT_USAGE, Commands, naming, notes, tell
from veil.cli.remedies import advised
from veil.errors import VeilError
from veil.threads import settle
from veil.version import __version__

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

DESCRIPTION = """\
veil lets cameras localize and map through a server that cannot see what they
saw.

What leaves the device in place of a descriptor is an affine subspace that
contains it among decoys, which is an obfuscation without proof, or a few random
words of a public dictionary, with an epsilon for each feature that a ledger
adds up. `veil inspect` says what a release contains and does not protect.
"""

# What `veil` alone prints.
WELCOME = """\
veil lets cameras localize and map through a server that cannot see what they
saw.

Begin with
  veil demo                               all of it on bundled photographs
  veil extract photos/ -o features.h5     features, which stay on the device
  veil privatize features.h5 -o upload/   what may leave the device
  veil inspect upload/*.veil              what it holds, and does not protect
  veil map upload/ -o map/                a map of uploads, as a server makes it

`veil --help` lists all commands, `veil COMMAND --help` has examples of each,
and `veil completion bash` (zsh, fish) lets the shell complete them.
"""

EXAMPLES = """\
examples:
  veil demo                                 all of it, with a report
  veil extract photos/ -o features.h5       features that stay on the device
  veil privatize features.h5 -o upload/     what may leave it
  veil budget show                          what was spent of epsilon
  veil map upload/ -o map/                  on the server: a map of uploads
  veil localize map/ upload/3f2a....veil    a pose, or why there is none
  veil serve store/                         the same over HTTP (`veil client`)
  veil audit upload/ --images features.h5   attack your own upload

exit codes: 0 done, 1 failed (the message says what to do), 2 wrong usage,
3 no pose or gravity found, 4 an audit broke a rule
"""

# The summary of each command in `veil --help`.
COMMANDS = {
    "extract": "photographs -> raw features (stay on the device)",
    "privatize": "raw features -> uploads that may leave the device",
    "budget": "what was spent of epsilon, and what may be",
    "gravity": "photographs -> where down is in each (stays on the device)",
    "codebook": "build or describe a codebook",
    "map": "uploads or raw features -> a map",
    "map import": "a model of COLMAP, hloc or nerfstudio -> a map",
    "map remove": "take images out of a map",
    "map align": "a map's place on Earth",
    "plan map": "what a map of many images takes",
    "tiles cut": "a public map -> tiles that devices fetch privately",
    "tiles plan": "what private fetching of tiles costs",
    "index": "a map + a dictionary -> indexes for queries",
    "localize": "upload + map -> a pose, or a reason why there is none",
    "serve": "the service of a folder, over HTTP",
    "serve place": "say where on Earth a server's map is",
    "serve token": "make, list or revoke tokens of a server",
    "serve backup": "write a server's state into a file, while it runs",
    "serve restore": "a server's folder from a backup",
    "serve adopt": "say that a database and blobs are one store",
    "serve suspects": "contributions to a server's map that its administrator should look at",
    "serve tiles": "tiles that a server gives to devices without learning which",
    "client": "contribute, localize, delete on a server",
    "view": "a map or an audit as one HTML page, or as PLY, glTF or a COLMAP model",
    "inspect": "what a file contains and does not protect",
    "audit": "what the server can see: every known attack on your own upload",
    "invert": "pictures from features or messages",
    "demo": "the whole path on bundled photographs",
    "doctor": "what this machine offers",
    "completion": "complete commands and options in a shell",
}
# Groups whose name alone is no command, with their summaries. `map` and `serve` are commands that have others below them.
GROUPS = {
    "plan": "what work takes before it is done",
    "tiles": "a public map in tiles that devices fetch privately",
}
# The module of `veil.cli` that registers each command.
MODULES = {
    "extract": "device.extract",
    "privatize": "device.privatize",
    "budget": "device.budget",
    "gravity": "device.gravity",
    "codebook": "codebook.build",
    "map": "server.map",
    "map import": "server.map_import",
    "map remove": "server.removal",
    "map align": "server.align",
    "plan map": "server.plan",
    "tiles cut": "server.tiles",
    "tiles plan": "server.tiles",
    "index": "server.index",
    "localize": "server.localize",
    "serve": "server.serve",
    "serve place": "server.serve",
    "serve token": "server.serve",
    "serve backup": "server.serve_upkeep",
    "serve restore": "server.serve_upkeep",
    "serve adopt": "server.serve_upkeep",
    "serve suspects": "server.serve_upkeep",
    "serve tiles": "server.serve_tiles",
    "client": "device.client",
    "view": "view",
    "inspect": "privacy.inspect",
    "audit": "privacy.audit",
    "invert": "privacy.inversion",
    "demo": "demo",
    "doctor": "doctor",
    "completion": "completion",
}

# Other packages bring commands by entry points of this group: each has the name of a command, and is a function that registers
# it. A command of veil itself is never replaced.
BROUGHT = "veil.commands"
# Those that veil knows of: the package that brings each, and its summary.
PACKAGES = {
    "faces": ("veil-faces", "face templates"),
    "evaluate": ("veil-lab", "run a public protocol"),
    "lab": ("veil-lab", "train networks that attacks and audits use"),
}


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (by default that of the process) and return the exit code."""
    settle()
    words = _joined(sys.argv[1:] if argv is None else argv)
    if not words:
        print(WELCOME, end="")
        return EXIT_USAGE
    asked = _asked(words)
    if asked in PACKAGES and asked not in brought():
        tell(f"veil: `veil {asked}` is a command of another package; {_how_to_install(PACKAGES[asked][0])}")
        return EXIT_USAGE
    parser = _parser(words)
    arguments = parser.parse_args(words)
    if not hasattr(arguments, "run"):
        parser.print_help()
        return EXIT_USAGE
    return _exit_code(arguments)


def _exit_code(arguments: argparse.Namespace) -> int:
    """The exit code of a command, whose errors are printed as sentences; --names says of what photographs they speak."""
    with ExitStack() as stack:
        try:
            if getattr(arguments, "names", None) is not None:
                from veil.files.photographs.names import read_names  # loads NumPy

                stack.enter_context(naming(read_names(arguments.names)))
            with notes():
                return int(arguments.run(arguments))
        except VeilError as error:
            tell(f"veil: {advised(error)}")
            return EXIT_ERROR
        except BrokenPipeError:
            return EXIT_OK
        except OSError as error:  # a full disk, a missing permission
            tell(f"veil: {error}; make room or choose another place")
            return EXIT_ERROR
        except KeyboardInterrupt:
            tell("veil: interrupted; nothing was left half-written")
            return 130


def _joined(words: Sequence[str]) -> list[str]:
    """The words of a command line, in which the first two are one if both name a command below a command, as `map remove`.

    So `veil map remove` is never a map of the folder "remove", which is ./remove.
    """
    both = " ".join(words[:2])
    return [both, *words[2:]] if both in COMMANDS and words[0] in COMMANDS else list(words)


def _asked(words: Sequence[str]) -> str | None:
    """The command that a command line names; None if it names none."""
    return next((word for word in words if not word.startswith("-")), None)


def brought() -> dict[str, EntryPoint]:
    """The entry points of commands that installed packages bring, by the command's name: known ones first, others by name."""
    from importlib.metadata import entry_points

    points = {point.name: point for point in entry_points(group=BROUGHT) if point.name not in COMMANDS}
    return {name: points[name] for name in (*PACKAGES, *sorted(points)) if name in points}


def _how_to_install(package: str) -> str:
    """Where a package comes from that is not installed."""
    folder = package.removeprefix("veil-")
    return f"run: pip install {package} (in a checkout of veil: pip install -e {folder})"


def _parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The parser of a command line. It knows all commands if `words` is None, else in full only the one that `words` name.

    The imports of a command take a second or more, so the others have a name and a summary only. Commands that other packages
    bring are looked up unless `words` name one of veil itself.
    """
    parser = argparse.ArgumentParser(prog="veil", description=DESCRIPTION, epilog=EXAMPLES, formatter_class=FirstWords)
    parser.add_argument("--version", action="version", version=f"veil {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    asked = None if words is None else _asked(words)
    for name, summary in COMMANDS.items():
        group = name.partition(" ")[0]
        is_wanted = words is None or asked in (name, group if group in GROUPS else name) or _brings(asked, name)
        if group in GROUPS:
            if group not in commands.choices:
                _add_group(commands, group, in_full=is_wanted)
        elif not is_wanted:
            commands.add_parser(name, help=summary)
        else:
            if name not in commands.choices:  # a module may bring several
                import_module(f"veil.cli.{MODULES[name]}").register(commands)
            parser_of = commands.choices[name]
            parser_of.description = (parser_of.description or "") + _told_below(name)
    if asked not in COMMANDS and asked not in GROUPS:
        _add_brought(commands, asked, all_of_them=words is None)
    return parser


class FirstWords(argparse.RawDescriptionHelpFormatter):
    """The help of `veil`, which leaves commands below a command to the help of that."""

    def _iter_indented_subactions(self, action: argparse.Action) -> Generator[argparse.Action, None, None]:
        yield from (item for item in super()._iter_indented_subactions(action) if " " not in item.dest)

    def format_help(self) -> str:
        self._action_max_length += self._indent_increment  # which argparse forgets of commands
        return super().format_help()


def _brings(asked: str | None, name: str) -> bool:
    """Whether the module of the command that was asked for registers another command, too."""
    return asked in MODULES and MODULES[asked] == MODULES[name]


def _below(name: str) -> dict[str, str]:
    """Summaries of the commands below a command or a group, by their last word."""
    return {each.partition(" ")[2]: summary for each, summary in COMMANDS.items() if each.startswith(f"{name} ")}


def _told_below(name: str) -> str:
    """The commands below a command, for its description; empty if there are none."""
    below = _below(name)
    widest = max(map(len, below), default=0)
    lines = [f"\n  veil {name} {word.ljust(widest)}  {summary}" for word, summary in below.items()]
    return "\n\nCommands below it have help of their own:" + "".join(lines) if lines else ""


def _add_group(commands: Commands, group: str, *, in_full: bool) -> None:
    """Add a group of commands: its summary alone, or with the commands in it."""
    if not in_full:
        commands.add_parser(group, help=GROUPS[group])
        return
    summary = GROUPS[group]
    parser = commands.add_parser(group, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    actions = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in dict.fromkeys(MODULES[f"{group} {word}"] for word in _below(group)):
        import_module(f"veil.cli.{module}").register(actions)


def _add_brought(commands: Commands, asked: str | None, *, all_of_them: bool) -> None:
    """Add the commands that installed packages bring: in full the one that was asked for, or all; of the others a summary."""
    points = brought()
    for name, point in points.items():
        if all_of_them or name == asked:
            point.load()(commands)
        else:
            _, summary = PACKAGES.get(name, ("", f"of {point.dist.name if point.dist else 'another package'}"))
            commands.add_parser(name, help=summary)
    if not all_of_them:
        for name, (package, summary) in PACKAGES.items():
            if name not in points:
                commands.add_parser(name, help=f"{summary}; not here: pip install {package}")

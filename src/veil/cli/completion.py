"""`veil completion`: what a shell needs to complete veil's commands, options and their values."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from veil.cli.common import EXIT_OK, Commands
from veil.cli.records import Record, add_record_command, positional

COMPLETION_EXAMPLES = """\
  veil completion bash > ~/.local/share/bash-completion/completions/veil
  veil completion zsh > ~/.veil-completion && echo 'source ~/.veil-completion' >> ~/.zshrc
  veil completion fish > ~/.config/fish/completions/veil.fish
"""

_BASH = """\
# Completion of veil's commands, options and their values, as `veil completion` of version {version} wrote it.
_veil() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" command="" words="" i next
    for ((i = 1; i < COMP_CWORD; i++)); do
        next="${{command:+$command }}${{COMP_WORDS[i]}}"
        case "$next" in
            {known}) command="$next" ;;
            *) break ;;
        esac
    done
    case "$command $previous" in
{values}
        *)
            case "$command" in
{commands}
            esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o bashdefault -o default -F _veil veil
"""
_ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"
_FISH = """\
# Completion of veil's commands, options and their values, as `veil completion` of version {version} wrote it.
function __veil_command
    set -l known {known}
    set -l found
    for word in (commandline -opc)[2..]
        contains -- (string join -- ' ' $found $word) $known; or break
        set -a found $word
    end
    echo "$found"
end
"""


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option: its names, whether a value follows, the values that there are (none: any), and what it is."""

    names: tuple[str, ...]
    takes_value: bool
    choices: tuple[str, ...]
    told: str


@dataclass(frozen=True, kw_only=True)
class Completed:
    """A command or a group of commands: its words after `veil`, the words that go on from it, and its options."""

    words: str
    further: tuple[tuple[str, str], ...]
    options: tuple[Option, ...]
    takes_input: bool


@dataclass(frozen=True, kw_only=True)
class Completion(Record):
    """Write what a shell needs to complete veil's commands, options and their values. The file is of this
    version of veil: write it again after an upgrade.
    """

    shell: Literal["bash", "zsh", "fish"] = positional("which shell")


def register(commands: Commands) -> None:
    """Add the command `completion`."""
    summary = "complete commands and options in a shell"
    add_record_command(commands, "completion", summary, COMPLETION_EXAMPLES, Completion, run)


def run(arguments: Completion) -> int:
    """Print the script of a shell."""
    from veil.cli import _parser
    from veil.version import __version__

    print(script(arguments.shell, _parser(), __version__), end="")
    return EXIT_OK


def script(shell: str, parser: argparse.ArgumentParser, version: str) -> str:
    """The completion script of a shell, `bash`, `zsh` or `fish`, for all commands of a parser."""
    completions = list(completed(parser))
    return _fish(completions, version) if shell == "fish" else (_ZSH if shell == "zsh" else "") + _bash(completions, version)


def completed(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = (), above: tuple[Option, ...] = ()
) -> Iterator[Completed]:
    """The commands below a parser and itself. A name of two words, as `map remove`, goes on from its first word.

    `above` are options of the groups that the parser is in, which may stand after its name, too.
    """
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    below = {name: child for group in groups for name, child in group.choices.items()}
    summaries = {choice.dest: choice.help or "" for group in groups for choice in group._choices_actions}
    options = (*(_option(action) for action in parser._actions if action.option_strings), *above)
    shared = tuple(option for option in options if words and "--help" not in option.names)
    firsts = {name.split()[0] for name in below}
    for name in sorted(firsts | set(below)):
        child = below.get(name)
        further = tuple((item.split()[1], summaries[item]) for item in below if item.startswith(f"{name} "))
        here = (*words, *name.split())
        if child is None:
            yield Completed(words=" ".join(here), further=further, options=(), takes_input=False)
            continue
        for item in completed(child, here, shared):
            own = item.words == " ".join(here)
            yield Completed(**{**vars(item), "further": (*item.further, *further)}) if own else item
    yield Completed(
        words=" ".join(words),
        further=tuple((name, summaries.get(name, "")) for name in sorted(firsts)),
        options=options,
        takes_input=any(not action.option_strings and action not in groups for action in parser._actions),
    )


def _option(action: argparse.Action) -> Option:
    meaning = "" if action.help in (None, argparse.SUPPRESS) else re.sub(r"\s*\(?default[^)]*\)?", "", str(action.help))
    return Option(
        names=tuple(action.option_strings),
        takes_value=action.nargs != 0,
        choices=tuple(str(choice) for choice in action.choices or ()),
        told=meaning.replace("%%", "%"),
    )


def _bash(completions: list[Completed], version: str) -> str:
    values, commands = [], []
    for item in completions:
        for option in item.options:
            if option.takes_value:
                cases = "|".join(f'"{item.words} {name}"' for name in option.names)
                values.append(f'        {cases}) words="{" ".join(option.choices)}" ;;')
        options = " ".join(name for option in item.options for name in option.names)
        # Where files may follow, words are offered once they are begun: an empty word is completed by files.
        begun = '[[ -n "$current" ]] && ' if item.takes_input else ""
        plain = " ".join(name for name, _ in item.further)
        commands.append(f'                "{item.words}") {begun}words="{f"{plain} {options}".strip()}" ;;')
    known = "|".join(f'"{item.words}"' for item in completions if item.words)
    return _BASH.format(version=version, known=known, values="\n".join(values), commands="\n".join(commands))


def _fish(completions: list[Completed], version: str) -> str:
    known = " ".join(_quoted(item.words) for item in completions if item.words)
    lines = [_FISH.format(version=version, known=known)]
    for item in completions:
        here = f"complete -c veil -n 'test (__veil_command) = \"{item.words}\"'"
        if not item.takes_input:
            lines.append(f"{here} -f\n")
        lines += [f"{here} -a {name} -d {_quoted(meaning)}\n" for name, meaning in item.further]
        for option in item.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            value = f" -x -a {_quoted(' '.join(option.choices))}" if option.choices else " -r" if option.takes_value else ""
            lines.append(f"{here} {names}{value} -d {_quoted(option.told)}\n")
    return "".join(lines)


def _quoted(text: str) -> str:
    """Text between single quotes, as fish reads it."""
    return "'" + " ".join(text.split()).replace("\\", "\\\\").replace("'", "\\'") + "'"

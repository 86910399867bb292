"""Number and length of the sentences of the documentation, page by page: `python docs/extensions/sentences.py [FILE ...]`.

Counted is running text: code, tables, headings, equations, lists of literature and the targets of links are left out. A list
item ends a sentence, a colon does not.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parents[2]
LONG = 30
# Pages of records and of generated text, and lists of literature.
LEFT_OUT = ("docs/results.md", "docs/reference/cli.md", "docs/reference/json.md", "docs/bibliography.md")
_FENCED = re.compile(r"^ {0,3}(```+|~~~+|:::+).*?^ {0,3}\1", re.MULTILINE | re.DOTALL)
_EQUATION = re.compile(r"\$\$.*?\$\$", re.DOTALL)
_SKIPPED = re.compile(r"\s*(\||#|!\[|---|<)")
_ITEM = re.compile(r"\s*(?:[-*]|\d+\.) ")
# No end of a sentence: the full stop of an abbreviation, or of an initial.
_SHORT = r"(?<![ (]al)(?<![ (][A-Z])(?<!e\.g)(?<!i\.e)(?<!Eq)(?<!Sec)(?<!vs)"
_END = re.compile(_SHORT + r"[.!?][)*\"]*\s+(?=[*(\"`\[]*(?:[A-Z0-9`]|veil\b))")


def paragraphs(text: str) -> list[str]:
    """The paragraphs and list items of a Markdown page, each on one line, without markup."""
    text = text.partition("\n## Bibliography")[0]
    text = _EQUATION.sub(" Xx ", _FENCED.sub("\n\n", text))
    blocks: list[list[str]] = [[]]
    for line in text.splitlines():
        if not line.strip() or _SKIPPED.match(line):
            blocks.append([])
        elif _ITEM.match(line):
            blocks.append([_ITEM.sub("", line, count=1)])
        else:
            blocks[-1].append(line)
    joined = (" ".join(" ".join(block).split()) for block in blocks if block)
    return [_plain(block) for block in joined]


def _plain(block: str) -> str:
    """A paragraph whose code and formulas are one word each, and whose links are their texts."""
    block = re.sub(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)", r"\1", block)
    block = re.sub(r"`[^`]*`", "Xx", block)
    return re.sub(r"\$[^$]*\$", "Xx", block)


def sentences(text: str) -> list[str]:
    """The sentences of a Markdown page."""
    return [part for block in paragraphs(text) for part in _END.split(block) if len(part.split()) > 1]


def length(sentence: str) -> int:
    """Number of words of a sentence; signs that stand alone, such as those of `1 / 2 %`, are none."""
    return sum(any(sign.isalnum() for sign in word) for word in sentence.split())


def pages() -> list[Path]:
    """The pages that the rules of docs/style.md are for."""
    listed = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")]
    return sorted(path for path in listed if path.relative_to(ROOT).as_posix() not in LEFT_OUT)


def main(names: list[str]) -> None:
    """Print a row for each page: number of sentences, mean number of words, and number of sentences over `LONG` words."""
    shown = [Path(name).resolve() for name in names] or pages()
    for path in shown:
        shown_sentences = sentences(path.read_text(encoding="utf-8"))
        lengths = [length(sentence) for sentence in shown_sentences]
        over = sum(number > LONG for number in lengths)
        row = f"{len(lengths):5d} sentences, mean {mean(lengths or [0]):5.1f} words, {over:4d} over {LONG}"
        print(f"{path.relative_to(ROOT).as_posix():34s} {row}")
        if names:
            for sentence in shown_sentences:
                if length(sentence) > LONG:
                    print(f"    {length(sentence)}: {sentence}")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Names of people and purposes in one spelling, so that two names that look alike are not two people."""

from __future__ import annotations

import unicodedata

from veil.errors import InputError

LONGEST = 256
# Two invisible characters without which Persian, Hindi and others cannot be written.
_JOINERS = "\u200c\u200d"


def checked_name(text: str, what: str) -> str:
    """The name `text` in Unicode's normal form C; `what` ("person", "purpose") is for error messages.

    Raises InputError for a name that is empty, begins or ends with a space, is longer than 256 characters, or holds a control
    character, a line break, or one that is not seen or turns others around (Unicode categories Cc, Cf but joiners, Cs, Zl, Zp).
    """
    name = unicodedata.normalize("NFC", text)
    if not name.strip():
        raise InputError(f"the {what} has no name (got {text!r}); give one, a pseudonym is enough")
    if name != name.strip():
        raise InputError(f"the {what} {text!r} begins or ends with a space; leave it out")
    if len(name) > LONGEST:
        raise InputError(f"the name of the {what} has {len(name)} characters, {LONGEST} are allowed; shorten it")
    for letter in name:
        if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") and letter not in _JOINERS:
            raise InputError(f"the {what} {text!r} holds {letter!r}, which is not seen or changes what is; leave it out")
    return name

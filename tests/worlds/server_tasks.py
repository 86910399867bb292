"""Tasks that misbehave, for processes that must survive them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from veil.errors import InputError, Remedy, WireError
from veil.server.jobs.processes import Tell


def double(value: Any, tell: Tell) -> Any:
    tell("doubling", 1, 2)
    return 2 * value


def pid(tell: Tell) -> int:
    return os.getpid()


def sleep(seconds: float, tell: Tell) -> None:
    time.sleep(seconds)


def chat(seconds: float, tell: Tell) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        tell("chatting", 0, 1)
        time.sleep(0.01)


def die(tell: Tell) -> None:
    os._exit(3)


def refuse(tell: Tell) -> None:
    raise WireError("it is damaged")


def misuse(tell: Tell) -> None:
    raise InputError("it is too small")


def misuse_here(tell: Tell) -> None:
    """Raises an error whose class no other process can find."""

    class Here(InputError):
        pass

    raise Here("it is too small", facts={"number": 1}, remedy=Remedy("raise", "localize.number"))


def fail(tell: Tell) -> None:
    raise ZeroDivisionError("a secret detail")


def die_once(place: str, tell: Tell) -> str:
    path = Path(place)
    if not path.exists():
        path.touch()
        os._exit(3)
    return "done"

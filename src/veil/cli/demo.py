"""`veil demo`."""


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add the command."""

"""Ground truth is known only here: attacks on releases, scored against the originals."""

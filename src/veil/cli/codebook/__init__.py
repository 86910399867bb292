"""The commands of `veil codebook`: `build` and `quality`, with `collect` and `clustering`, which they share."""

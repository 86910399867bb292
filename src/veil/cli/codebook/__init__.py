"""The commands of `veil codebook`: `build`, which `info` stands beside, with `collect` and `quality`, which it shares."""

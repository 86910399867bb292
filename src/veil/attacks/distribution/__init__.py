"""Attacks from the distribution of descriptors: they use a public database, the pool of decoys, or labelled descriptors."""

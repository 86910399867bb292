"""Attacks that know how descriptors are distributed: a public database, the pool of decoys, labelled people."""

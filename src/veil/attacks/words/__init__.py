"""Attacks on words: which word of a subset is the true one."""

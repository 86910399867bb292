"""Attacks on words: which word of a subset is the true one.

`posterior` weighs one release or several. `neighbors` uses which words occur together, as `cooccurrence` counts them. `votes`
joins uploads that a map links.
"""

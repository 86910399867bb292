"""Bundle adjustment from lines: Levenberg-Marquardt on the Schur complement.

`adjustment` is the loop, `schur` has its compiled sums, and `upright` adds gravity to it.
"""

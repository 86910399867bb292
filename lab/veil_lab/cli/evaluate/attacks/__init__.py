"""Protocols of attacks, in `veil evaluate`.

`attacks` (with `descriptor_attacks`), `defenses`, `forms`, `learned`, `neighborhoods`, `repeats` and `inversion` are one
protocol each.
`attack_tables` are tables of the first two, and `photographs` chooses and extracts what is attacked.
"""

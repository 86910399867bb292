"""Attacks: each sees only what an attacker sees."""

"""Attacks on a lifted descriptor by its own structure: integers and zeros reveal it without any database."""

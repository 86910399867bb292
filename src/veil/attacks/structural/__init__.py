"""Attacks on the structure of a lifted descriptor itself: whole numbers and zeros give it away without any database."""

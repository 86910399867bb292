"""Poses from matches of which some are wrong: RANSAC, its significance against chance, and what a pose must show."""

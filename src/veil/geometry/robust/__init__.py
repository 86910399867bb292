"""Poses from matches of which some are wrong: RANSAC, the number of false alarms, and what an accepted pose must show."""

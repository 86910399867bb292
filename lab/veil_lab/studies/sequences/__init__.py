"""Sequences of frames: `localization` compares them with single images at one epsilon of all that leaves."""

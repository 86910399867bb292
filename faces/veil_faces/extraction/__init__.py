"""Faces in photographs, and their descriptors: *raw side*."""

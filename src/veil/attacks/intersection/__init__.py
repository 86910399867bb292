"""Attacks on several releases together: subspaces that meet do so in a descriptor or in a shared decoy."""

"""Local differential privacy: mechanism, composition, budget, planning, and the guarantee that a form carries."""

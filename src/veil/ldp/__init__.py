"""Local differential privacy: the mechanism, composition, budgets, plans, and the guarantee that a form carries."""

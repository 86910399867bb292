"""Local differential privacy: the mechanism, composition, budgets, plans, and the guarantee that a form carries.

`mechanism` is the subset mechanism, `composition` adds up its losses, `budget` refuses what exceeds a limit, `planning` spends
an epsilon best, `rounding` tells losses no smaller than they are, and `guarantee` is what travels with a form.
"""

"""Studies of attacks through answers, and of what defends against them.

- `planting`: flat objects in photographs of scenes with known cameras. `separation`: area under the ROC curve.
- `asking`: a map in one form, as its server holds it, and what it answers.
- `study`: answers to views of objects and to photographs. `rows`: what they tell, and what defenses change.
- `in_photographs`: an attacker who paints his object into a photograph of the place.
"""

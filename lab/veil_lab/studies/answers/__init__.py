"""Studies of attacks through answers, and of what defends against them.

- `planting`: flat objects in photographs of scenes with known cameras. `separation`: area under the ROC curve.
- `study`: answers to views of objects and to photographs, and what defenses change.
"""

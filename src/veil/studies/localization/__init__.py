"""Studies of localization: held-out and forged queries, in every form, against public maps."""

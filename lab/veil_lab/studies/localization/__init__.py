"""Studies of localization: held-out queries, false queries and forged queries, in every form, against maps of places."""

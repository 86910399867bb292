"""A simulated city with planted truth: streets, facades with descriptors of real photographs, and phones that walk there.

`images.City` makes images one by one as features, from `looks.Looks` (tiles of photographs) and `views.ViewStatistics` (what
`tracks` measures on real scenes). Image i is a function of seed and i.
docs/theory/city.md says what is modeled and what is not.
"""

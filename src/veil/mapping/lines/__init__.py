"""Structure-from-motion from lines alone (Geppert et al. 2020); so far the seed: four views with known gravity."""

"""Studies of matching: accuracy on image sequences with homographies, and distances of descriptors to words of a dictionary."""

"""Studies of faces: verification, identification, and what templates reveal of people."""

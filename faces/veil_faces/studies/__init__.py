"""Studies of faces: verification and identification by templates, and how much templates reveal of people."""

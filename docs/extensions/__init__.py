"""What the documentation site needs beyond Sphinx: mathematics, Markdown docstrings, source pages, tutorials that run."""

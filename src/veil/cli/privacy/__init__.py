"""Commands that say what a release gives away: audit, inspect."""

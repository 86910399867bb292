"""What a Python user and the command line decide alike: paths and features in, records out; nothing here parses or prints."""

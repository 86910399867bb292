"""The version of veil: the build and the package both read it here, since nothing in the package imports the package itself."""

__version__ = "0.1.0"

"""The version of the program, which the package, the image and the records have."""

__version__ = "0.1.0"

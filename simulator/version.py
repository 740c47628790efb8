"""The version of the library, apart from its public names so that every layer may read it."""

__version__ = "0.1.0"

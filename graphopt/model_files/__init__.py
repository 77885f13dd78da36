"""Model files: loaded without their weights, checked once, and written completely or not at all."""

DEFAULT_THRESHOLD = 1024
"""Bytes from which a weight goes to the data file, when weights are saved as external data. It stands here, where
nothing heavy is imported, since the command line shows it."""

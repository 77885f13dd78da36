"""Model files: loaded without their weights, checked once, and written completely or not at all."""

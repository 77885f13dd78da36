"""Folding weights into weights: the one rewrite that changes values, and says so."""

"""From a file to a model of plain Python objects, checked."""

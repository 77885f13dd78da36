"""From matches to a new model, and back: outlining, prefix sharing, assembly, inlining."""

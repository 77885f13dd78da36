"""What an engine's kernels take, and what that means for a model."""

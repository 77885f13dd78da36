"""What kernels are made of: windows, columns, blocks, broadcasting, element types."""

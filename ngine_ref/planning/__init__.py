"""The plan of a run: its steps, what shares memory, and where everything lies."""

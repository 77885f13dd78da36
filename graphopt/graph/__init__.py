"""A model as scopes of nodes, and the data-flow view of one scope. Nothing here changes anything."""

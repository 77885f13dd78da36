"""The certificate: two models are the same expressions. It shares no code with matching and rewriting."""

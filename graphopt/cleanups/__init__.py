"""Cleanups: rewrites that remove what computes nothing, each small enough to be proven by the certificate.

They run on scopes, before the rules, so that rules meet the graph as it was meant.
"""

"""Fast paths: regions of a model that run several times faster than operator by operator.

`fast_pass.py` finds them in a plan. Begin to read at `program.py` (what a region is), `winograd.py` (the arithmetic)
and `layout.py` (the memory); `executor.py` and `stream.py` run them.
"""

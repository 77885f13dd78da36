"""The kernels, a module for each family; importing this package registers every operator.

A new operator is a module here, or a function in one of them: every module of this folder is imported.
"""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

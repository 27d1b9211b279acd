"""Optional dependencies."""

import importlib


def require(module, extra):
    """Imports `module`, or says which extra of this package brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"This needs `{module.partition('.')[0]}`, which is not installed. "
            f"Run: pip install 'keras-compembed[{extra}]'"
        ) from error

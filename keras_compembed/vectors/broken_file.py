"""Errors of files that break their rules."""

import contextlib
import errno


@contextlib.contextmanager
def naming(path, kind):
    """Makes whatever a reader raises a ValueError that names the file."""
    try:
        yield
    except ImportError:
        raise
    except Exception as error:  # Libraries raise any for damaged files.
        # Invalid arguments are places that are not in the file.
        is_broken = getattr(error, "errno", None) in (None, errno.EINVAL)
        if isinstance(error, OSError) and not is_broken:
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"{str(path)!r} cannot be read as {kind}: {reason.rstrip('.')}."
        ) from error

"""What went wrong, in one line."""


def on_one_line(error):
    """The message of an error without line breaks, or the error's class."""
    return " ".join(str(error).split()) or type(error).__name__

"""Files in a zip archive behind a LiteRT file, where apps look for them."""

import io
import zipfile


def attach(content, files):
    """Bytes of a LiteRT file with an archive behind."""
    if not files:
        return content
    whole = io.BytesIO(content)
    # MediaPipe reads files in place, hence uncompressed.
    with zipfile.ZipFile(whole, "a", zipfile.ZIP_STORED) as archive:
        for name, part in files.items():
            # With the date that it has by default, equal exports are equal.
            archive.writestr(zipfile.ZipInfo(name), part)
    return whole.getvalue()

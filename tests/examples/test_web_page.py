"""The folder that `examples/web_page.py` writes, without a browser."""

import json
import os
import re

import export_models
import pytest
from text_pages import make_model
from text_pages import write_package

from examples import web_page

pytest.importorskip("tensorflow_text")
pytest.importorskip("mediapipe")
FILES = {"page.css", "page.js", "index.html", "model.tflite", "tasks-text"}


def test_what_pages_say(tmp_path):
    about = {"name": "Cats & dogs", "description": "<i>Which</i> it is."}
    model = make_model()
    for name, options in (
        ("about", {"labels": list("abc"), "metadata": about}),
        ("text", {"labels": list("abc")}),
        ("other", {"labels": list("acb")}),
    ):
        path = tmp_path / f"{name}.tflite"
        export_models.write(model, path, runtime="mediapipe", **options)
    package = write_package(tmp_path / "package")
    examples = ["</script><!--", "caf\u00e9 \U0001f600", "two\u2028half $title"]
    (tmp_path / "texts.txt").write_text("\r\n\n".join(examples), "utf-8")
    folder = tmp_path / "page"
    flags = [f"--output={folder}", f"--tasks-text={package}"]
    flags.insert(0, str(tmp_path / "about.tflite"))
    with pytest.raises(SystemExit, match="must have the classes"):
        web_page.main([*flags, f"--beside={tmp_path / 'other.tflite'}"])
    assert not folder.exists()
    flags.append(f"--beside={tmp_path / 'text.tflite'}")
    web_page.main([*flags, f"--examples={tmp_path / 'texts.txt'}"])
    assert set(os.listdir(folder)) == FILES | {"beside.tflite"}
    page = (folder / "index.html").read_text("utf-8")
    (settings,) = re.findall(r'id="settings">(.*?)</script>', page, re.S)
    settings = json.loads(settings)
    assert settings["examples"] == examples
    beside = {"name": "text.tflite", "url": "beside.tflite"}
    assert settings["files"][1] == beside
    assert page.count("</script>") == 2
    assert "<title>Cats &amp; dogs</title>" in page
    assert "<p>&lt;i&gt;Which&lt;/i&gt; it is.</p>" in page

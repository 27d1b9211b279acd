import keras
import numpy as np
import pytest

import keras_compembed as kc
from keras_compembed.learners import row_blocks

pytest.importorskip("distributed")
from examples import large_table  # noqa: E402


@pytest.mark.filterwarnings("ignore::DeprecationWarning:distributed")
def test_a_cluster_gives_the_codes_of_one_core(tmp_path, monkeypatch, capsys):
    # Else so few rows are all in one block.
    monkeypatch.setattr(row_blocks, "_CHUNKS", 1)
    table = np.random.default_rng(0).normal(size=(1800, 12)).astype("float32")
    (tmp_path / "table").mkdir()
    for place, part in enumerate(np.split(table, [700])):
        np.save(tmp_path / "table" / f"part-{place}.npy", part)
    layer = large_table.main(
        [
            str(tmp_path / "table"),
            f"--output={tmp_path / 'small' / 'table.keras'}",
            "--num-codebooks=4",
            "--codebook-size=8",
            "--workers=2",
        ]
    )
    assert "1,800 rows of 12 numbers, 86,400 bytes" in capsys.readouterr().out
    expected = kc.CodeEmbedding.from_table(table, 4, 8, seed=0, verbose=0)
    np.testing.assert_array_equal(layer.codes, expected.codes)
    ids = np.arange(1800)[None]
    saved = keras.saving.load_model(tmp_path / "small" / "table.keras")
    np.testing.assert_array_equal(saved(ids), layer(ids))
    np.testing.assert_array_equal(layer(ids), expected(ids))
    assert [path.name for path in (tmp_path / "small").iterdir()] == [
        "table.keras"
    ]


def test_mistakes_are_named_before_work(capsys):
    with pytest.raises(SystemExit):
        large_table.main(["table.npy", "--output=small.npz"])
    assert "--output must end in .keras" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        large_table.main(["table.npy", "--output=a.keras", "--workers=0"])
    assert "--workers must be positive" in capsys.readouterr().err

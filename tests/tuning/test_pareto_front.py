import json

import pytest
from errors import refused

from keras_compembed.tuning import ParetoFront
from keras_compembed.tuning import TunedTrial

SIZES_AND_SCORES = [
    (100, 0.5),
    (100, 0.6),
    (200, 0.55),
    (300, 0.6),
    (400, 0.7),
    (500, 0.9),
]


def make_front(sign=1):
    trials = [
        TunedTrial(str(place), f"way {place}", size, sign * score, {"x": place})
        for place, (size, score) in enumerate(SIZES_AND_SCORES)
    ]
    direction = "max" if sign == 1 else "min"
    return ParetoFront(trials[::-1], "score", direction, original_bytes=1000)


@pytest.mark.parametrize("sign", [1, -1])
def test_best(sign):
    front = make_front(sign)
    assert [x.trial_id for x in front.best] == ["1", "4", "5"]
    # By definition: none is as small and as good, and smaller or better.
    for trial in front.trials:
        beaten = any(
            other is not trial
            and other.litert_bytes <= trial.litert_bytes
            and sign * other.score >= sign * trial.score
            for other in front.trials
        )
        assert beaten == (trial not in front.best)
    assert front.best_under().trial_id == "5"
    assert front.best_under(499).trial_id == "4"
    assert front.best_under(100).trial_id == "1"
    with refused("max_bytes", 99) as caught:
        front.best_under(99)
    assert "'way 1'" in str(caught.value)


def test_forms(tmp_path):
    front = make_front()
    lines = str(front).splitlines()
    assert lines[2].split() == ["100", "10.0x", "0.6000", "*", "way", "1"]
    assert lines[3].split() == ["100", "10.0x", "0.5000", "way", "0"]
    path = tmp_path / "front.json"
    front.save(path)
    assert json.loads(path.read_text()) == front.to_dict()
    best = [trial["is_best"] for trial in front.to_dict()["trials"]]
    assert best == [True, False, False, False, True, True]
    with pytest.raises(FileExistsError):
        front.save(path)


def test_picture(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "front.png"
    make_front().plot(path)
    assert path.read_bytes().startswith(b"\x89PNG")

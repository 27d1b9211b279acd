"""Searches that go on after the process was killed."""

import functools
import glob
import inspect
import json
import os
import warnings

from keras_compembed.tuning.objective_check import check_validation
from keras_compembed.tuning.objective_check import objective_names
from keras_compembed.utils.extras import require
from keras_compembed.utils.files import replacing

_FILE = "search.json"
_FITS = "tables"


def resumable(tuner_class):
    """A tuner of keras-tuner that can be killed at any moment, and go on.

    Run the same program again with `overwrite=False`, the default: trials that
    were finished are there, the one that was running starts again, and the
    search goes on as it would have, with the same trials if it has a seed.

    keras-tuner alone fails there where it was killed while it wrote a file,
    counts trials that it never ran, and begins a grid search anew. Here the
    state of the search is in one file, `search.json`, which is replaced as a
    whole. Fits of tables are kept beside it. In a search by several processes
    keras-tuner's own files are used.

    Ctrl-C ends `search`, if a trial is finished; call it again to go on.

    Example:

    >>> import keras_tuner
    >>> model = keras.Sequential([
    ...     keras.Input((8,), dtype="int32"),
    ...     keras.layers.Embedding(500, 16, name="words"),
    ...     keras.layers.GlobalAveragePooling1D(),
    ...     keras.layers.Dense(1),
    ... ])
    >>> model.compile("adam", "mse")
    >>> hypermodel = kc.tuning.CompressedHyperModel(
    ...     model, min_bytes=0, seed=0, verbose=0
    ... )
    >>> tuner = resumable(keras_tuner.Hyperband)(
    ...     hypermodel, objective="val_loss", max_epochs=2, seed=0,
    ...     directory="tuning", project_name="words",
    ... )
    >>> ids = np.zeros((8, 8), "int32")
    >>> data = (ids, np.zeros((8, 1)))
    >>> tuner.search(*data, validation_data=data, verbose=0)

    Args:
        tuner_class: A subclass of `keras_tuner.Tuner`, such as
            `keras_tuner.RandomSearch`, `BayesianOptimization`, `Hyperband` or
            `GridSearch`.

    Returns:
        A subclass of it, with the same arguments.

    Raises:
        TypeError: if `tuner_class` is no such class.
        ValueError: from the tuner, if it has no objective, or its folder holds
            a search of other hyperparameters or another objective.
    """
    keras_tuner = require("keras_tuner", "tune")
    if not inspect.isclass(tuner_class) or not issubclass(
        tuner_class, keras_tuner.Tuner
    ):
        raise TypeError(
            "`tuner_class` must be a subclass of `keras_tuner.Tuner`, such as "
            "`keras_tuner.RandomSearch`. Received: "
            f"tuner_class={tuner_class!r}."
        )
    return _subclass(tuner_class)


@functools.cache
def _subclass(tuner_class):
    name = f"Resumable{tuner_class.__name__}"
    return type(name, (_Resumable, tuner_class), {"__module__": __name__})


class _Resumable:
    """Mixin of a `keras_tuner.Tuner`."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        objective_names(self.oracle.objective)
        # Of a `CompressedHyperModel`; others do as they like.
        self._keeps_fits = hasattr(self.hypermodel, "fits")
        if self._keeps_fits:
            folder = os.path.join(self.project_dir, _FITS)
            self.hypermodel.fits.folder = folder

    def search(self, *fit_args, **fit_kwargs):
        if self._keeps_fits:
            names = objective_names(self.oracle.objective)
            check_validation(names, fit_args, fit_kwargs)
        try:
            super().search(*fit_args, **fit_kwargs)
        except KeyboardInterrupt:
            done = self._finished()
            if not done:
                raise
            print(
                f"Stopped by Ctrl-C. {len(done)} trials are kept in "
                f"{self.project_dir}. Call `search` again to go on."
            )

    def on_trial_begin(self, trial):
        super().on_trial_begin(trial)
        self._write()

    def on_trial_end(self, trial):
        super().on_trial_end(trial)
        self._write()

    def reload(self):
        if not os.path.exists(self._path):
            super().reload()
            return
        with open(self._path, encoding="utf-8") as file:
            state = json.load(file)
        self._check_same(state)
        if _is_grid(self.oracle):
            self._replay(state)
        else:
            self._restore(state)
        self.set_state(state["tuner"])
        # Those that a kill left behind may be half-written.
        for path in glob.glob(
            os.path.join(glob.escape(self.project_dir), "trial_*", "trial.json")
        ):
            os.remove(path)
        for trial_id, trial in self.oracle.trials.items():
            path = os.path.join(self.get_trial_dir(trial_id), "trial.json")
            trial.save(path)
        self.save()

    @property
    def _path(self):
        return os.path.join(self.project_dir, _FILE)

    def _finished(self):
        return [x for x in self.oracle.trials.values() if _is_finished(x)]

    def _write(self):
        if not _is_own(self.oracle):
            return
        content = {
            "objective": _describe(self.oracle.objective),
            "fingerprint": getattr(self.hypermodel, "fingerprint", None),
            "tuner": self.get_state(),
            "oracle": self.oracle.get_state(),
            "trials": [x.get_state() for x in self.oracle.trials.values()],
        }
        with replacing(self._path, overwrite=True) as temporary:
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump(content, file)
                file.flush()
                os.fsync(file.fileno())

    def _check_same(self, state):
        """Raises if the search in the folder is another one."""
        way_out = (
            " Pass another `project_name`, or `overwrite=True` to lose what "
            f"{self.project_dir!r} holds."
        )
        objective = _describe(self.oracle.objective)
        if state["objective"] != objective:
            raise ValueError(
                "The objective must be that of the search in the folder. "
                f"Received: {objective}, and it was {state['objective']}."
                + way_out
            )
        space = require("keras_tuner", "tune").HyperParameters()
        self.hypermodel.declare_hyperparameters(space)
        saved = state["oracle"]["hyperparameters"]["space"]
        missing = [
            part["config"]["name"]
            for part in json.loads(json.dumps(space.get_config()["space"]))
            if part not in saved
        ]
        if missing:
            raise ValueError(
                "Hyperparameters must be those of the search in the folder. "
                f"Received: others for {missing}." + way_out
            )
        fingerprint = getattr(self.hypermodel, "fingerprint", None)
        if state["fingerprint"] != fingerprint:
            warnings.warn(
                f"Trials in {self.project_dir!r} started from other weights "
                "than those of this model.",
                stacklevel=2,
            )

    def _restore(self, state):
        oracle = dict(state["oracle"])
        trial_class = require("keras_tuner", "tune").engine.trial.Trial
        for content in state["trials"]:
            trial = trial_class.from_state(content)
            self.oracle.trials[trial.trial_id] = trial
        running = list(oracle["ongoing_trials"].values())
        oracle["ongoing_trials"] = {}
        oracle["retry_queue"] = [*oracle["retry_queue"], *running]
        self.oracle.set_state(oracle)

    def _replay(self, state):
        """Does again what a grid search did, whose oracle saves no state."""
        keras_tuner = require("keras_tuner", "tune")
        trials = {x["trial_id"]: x for x in state["trials"]}
        self.oracle.update_space(
            keras_tuner.HyperParameters.from_config(
                state["oracle"]["hyperparameters"]
            )
        )
        verbose, self.oracle.verbose = self.oracle.verbose, 0
        for trial_id in state["oracle"]["start_order"]:
            old = keras_tuner.engine.trial.Trial.from_state(trials[trial_id])
            new = self.oracle.create_trial(self.tuner_id)
            if new.hyperparameters.values != old.hyperparameters.values:
                raise ValueError(
                    "A grid search must go on as it began. Received: "
                    f"{new.hyperparameters.values} in the place of "
                    f"{old.hyperparameters.values}."
                )
            if not _is_finished(old):
                break
            new.metrics, new.status = old.metrics, old.status
            new.message = old.message
            self.oracle.end_trial(new)
        self.oracle.verbose = verbose


def _is_finished(trial):
    return trial.status in ("COMPLETED", "FAILED")


def _is_own(oracle):
    """Whether the oracle is here, and not in another process."""
    return isinstance(oracle, require("keras_tuner", "tune").Oracle)


def _is_grid(oracle):
    oracles = require("keras_tuner", "tune").oracles
    return isinstance(oracle, oracles.GridSearchOracle)


def _describe(objective):
    parts = getattr(objective, "objectives", [objective])
    return [[part.name, part.direction] for part in parts]

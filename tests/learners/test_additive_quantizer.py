import tracemalloc

import numpy as np
import pytest

from keras_compembed.codes.packing import code_dtype
from keras_compembed.learners import beam_encoding
from keras_compembed.learners import coordinate_search as search
from keras_compembed.learners import quantizer_run
from keras_compembed.learners.additive_quantizer import AdditiveQuantizer
from keras_compembed.learners.beam_encoding import encode_rows
from keras_compembed.learners.straight_through import StraightThroughEncoder
from keras_compembed.utils import validation


def make_table(num_rows=300, width=12, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(10, width))
    table = centres[rng.integers(10, size=num_rows)] + 3.0
    return (table + 0.3 * rng.normal(size=table.shape)).astype("float32")


def quantizer(num_codebooks=4, codebook_size=8, effort=0.1, **kwargs):
    kwargs.setdefault("seed", 0)
    return AdditiveQuantizer(
        num_codebooks, codebook_size, effort=effort, verbose=0, **kwargs
    )


def mean_loss(table, learner, codes=None, weight=None):
    codes = learner.codes if codes is None else codes
    distance = np.square(table - learner.decode(codes), dtype="float64")
    return np.average(distance.sum(axis=1), weights=weight)


def one_hot(codes, codebook_size):
    matrix = np.zeros((*codes.shape, codebook_size))
    np.put_along_axis(matrix, codes[..., None].astype(int), 1, axis=2)
    return matrix.reshape(len(codes), -1)


def random_problem(num_codebooks, codebook_size, num_rows=70, width=6):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(num_rows, width)).astype("float32")
    codebooks = rng.normal(size=(num_codebooks, codebook_size, width))
    codes = search.random_codes(num_rows, num_codebooks, codebook_size, rng)
    return rows, codes, codebooks.astype("float32")


class TestCoordinateSearch:
    @pytest.mark.parametrize("shape", [(5, 4), (3, 64), (2, 200), (1, 3)])
    def test_sweep_takes_the_best_subcode_one_at_a_time(self, shape):
        rows, codes, codebooks = random_problem(*shape)
        sweep = search.Sweep(codebooks, np.random.default_rng(3))
        # The order that the sweep drew.
        order = np.random.default_rng(3).permutation(shape[0])
        wanted = codes.astype(int)
        for m in order:
            for i, row in enumerate(rows):
                others = sum(
                    codebooks[other, wanted[i, other]]
                    for other in range(shape[0])
                    if other != m
                )
                distance = np.square(row - others - codebooks[m]).sum(axis=1)
                wanted[i, m] = distance.argmin()
        residual = rows.copy()
        search.subtract_codewords(residual, codes, codebooks)
        sweep.run(residual, codes, 0.0, None, None)
        np.testing.assert_array_equal(codes, wanted)
        left = rows - codebooks[np.arange(shape[0]), wanted].sum(axis=1)
        np.testing.assert_allclose(residual, left, atol=1e-5)

    def test_sweep_draws_with_the_probability_of_its_temperature(self):
        codebooks = np.array([[[0.0], [1.0], [3.0]]], "float32")
        rows = np.full((20_000, 1), 0.4, "float32")
        codes = np.zeros((len(rows), 1), "uint8")
        rng = np.random.default_rng(0)
        sweep = search.Sweep(codebooks, rng)
        # A chunk is at most half the bank.
        noise = search.GumbelBank(3, rng)
        for start in range(0, len(rows), 500):
            part = slice(start, start + 500)
            sweep.run(rows[part].copy(), codes[part], 0.7, noise, rng)
        weight = np.exp(-np.square(0.4 - codebooks[0, :, 0]) / 0.7)
        seen = np.bincount(codes[:, 0], minlength=3) / len(rows)
        # Four standard deviations of a share of 20,000 draws.
        np.testing.assert_allclose(seen, weight / weight.sum(), atol=0.015)

    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("shape", [(4, 5), (2, 100)])
    def test_least_squares_solves_the_normal_equations(self, shape, weighted):
        rows, codes, codebooks = random_problem(*shape)
        weight = None
        if weighted:
            weight = np.random.default_rng(2).random(len(rows)) * 2
            weight = weight.astype("float32")
        stepped = codebooks + self._step(rows, codes, codebooks, weight)
        matrix = one_hot(codes, shape[1])
        scaled = matrix * (1 if weight is None else weight[:, None])
        left = scaled.T @ matrix + search._RIDGE * np.eye(matrix.shape[1])
        wanted = np.linalg.solve(left, scaled.T @ rows)
        # Single precision, times the condition number 1 / ridge of the sums.
        np.testing.assert_allclose(
            stepped.reshape(wanted.shape), wanted, atol=2e-4
        )

    @pytest.mark.parametrize("weighted", [False, True])
    def test_step_by_step_least_squares_reaches_the_same_loss(
        self, weighted, monkeypatch
    ):
        rows, codes, codebooks = random_problem(4, 70, num_rows=2000)
        weight = None
        if weighted:
            weight = np.random.default_rng(2).random(len(rows))
            weight = weight.astype("float32")
        losses = []
        for direct in (8192, 1):
            monkeypatch.setattr(search, "_DIRECT_CODEWORDS", direct)
            step = self._step(rows, codes, codebooks, weight)
            residual = rows.copy()
            search.subtract_codewords(residual, codes, codebooks + step)
            losses.append(
                np.average(np.square(residual).sum(axis=1), weights=weight)
            )
        # Six steps of conjugate gradients, not convergence.
        assert losses[0] * 0.9999 <= losses[1] <= losses[0] * 1.01

    @staticmethod
    def _step(rows, codes, codebooks, weight):
        residual = rows.copy()
        search.subtract_codewords(residual, codes, codebooks)
        if weight is not None:
            residual *= weight[:, None]
        sums = np.zeros_like(codebooks)
        search.sums_by_subcode(residual, codes, codebooks.shape[1], sums)
        return search.least_squares_step(codes, codebooks, sums, weight)

    @pytest.mark.parametrize("codebook_size", [5, 100])
    def test_sums_by_subcode(self, codebook_size):
        rows, codes, codebooks = random_problem(3, codebook_size)
        sums = np.ones_like(codebooks)
        search.sums_by_subcode(rows, codes, codebook_size, sums)
        wanted = one_hot(codes, codebook_size).T @ rows
        np.testing.assert_allclose(
            sums.reshape(wanted.shape), wanted + 1, atol=1e-5
        )

    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("codebook_size", [5, 20])
    def test_co_occurrence(self, codebook_size, weighted, monkeypatch):
        monkeypatch.setattr(search, "_CHUNK_SCORES", 20 * 15)
        _, codes, _ = random_problem(3, codebook_size)
        matrix = one_hot(codes, codebook_size)
        weight = np.random.default_rng(0).random(len(codes))
        weight = weight.astype("float32") if weighted else None
        scaled = matrix * (1 if weight is None else weight[:, None])
        np.testing.assert_allclose(
            search.co_occurrence(codes, codebook_size, weight),
            scaled.T @ matrix,
            rtol=1e-5,
        )

    def test_water_level_spends_the_bits(self):
        variances = np.array([4.0, 1.0, 0.25, 0.01])
        level = search.water_level(np.diag(variances), bits=3.0)
        spent = 0.5 * np.log2(np.maximum(variances / level, 1)).sum()
        assert spent == pytest.approx(3.0)

    def test_water_level_of_equal_rows_is_zero(self):
        assert search.water_level(np.zeros((3, 3)), bits=8) == 0


class TestBeamSearch:
    @pytest.mark.parametrize("shape", [(2, 4), (1, 40), (4, 2)])
    def test_a_beam_of_all_codes_finds_the_best(self, shape):
        rows, _, codebooks = random_problem(*shape)
        every = np.indices((shape[1],) * shape[0]).reshape(shape[0], -1).T
        sums = codebooks[np.arange(shape[0]), every].sum(axis=1)
        distance = np.square(rows[:, None] - sums).sum(axis=2)
        codes = encode_rows(rows, codebooks, np.random.default_rng(0))
        np.testing.assert_array_equal(codes, every[distance.argmin(axis=1)])

    def test_chunks_give_the_same_codes(self, monkeypatch):
        rows, _, codebooks = random_problem(5, 16)
        whole = encode_rows(rows, codebooks, np.random.default_rng(0))
        monkeypatch.setattr(beam_encoding, "_CHUNK_SCORES", 1000)
        parts = encode_rows(rows, codebooks, np.random.default_rng(0))
        np.testing.assert_array_equal(whole, parts)


class TestStraightThroughEncoder:
    def test_steps_lower_the_loss(self):
        table = make_table() - 3
        rng = np.random.default_rng(0)
        encoder = StraightThroughEncoder((4, 8, 12), table.std(), rng)
        losses = [
            encoder.train_on_batch(table[rng.integers(300, size=64)], i / 200)
            for i in range(200)
        ]
        assert np.mean(losses[-20:]) < 0.5 * np.mean(losses[:20])
        assert encoder.codes(table).max() < 8

    def test_rows_of_no_weight_do_not_count(self):
        table = make_table(20)
        weight = np.repeat(np.array([2.0, 0.0], "float32"), 10)
        other = table.copy()
        other[10:] = 100.0
        after = []
        for rows in (table, other):
            encoder = StraightThroughEncoder(
                (2, 4, 12), 1.0, np.random.default_rng(0)
            )
            encoder.train_on_batch(rows, 0.0, weight)
            after.append(encoder.codes(table))
            weights = encoder._weights
        np.testing.assert_array_equal(after[0], after[1])
        assert np.isfinite(weights).all()


class TestAdditiveQuantizer:
    @pytest.mark.parametrize("warm", [False, True])
    def test_learns(self, warm, monkeypatch):
        table = make_table()
        if warm:
            monkeypatch.setattr(quantizer_run, "_WARM_ROWS", 1)
        learner = quantizer(effort=0.3)
        assert learner.train(table) is learner
        assert learner.codes.shape == (300, 4)
        assert learner.codes.dtype == code_dtype(8)
        assert learner.codebooks.shape == (4, 8, 12)
        assert learner.codebooks.dtype == np.float32
        losses = learner.history["loss"]
        assert len(learner.history["seconds"]) == len(losses)
        assert losses[-1] == pytest.approx(mean_loss(table, learner), rel=1e-4)
        # The table is ten clusters of this variance a row.
        assert losses[-1] < 12 * 0.3**2

    def test_codes_are_the_best_for_their_codebooks(self):
        table = make_table()
        learner = quantizer().train(table)
        again = learner.encode(table)
        assert mean_loss(table, learner, again) <= 1.05 * mean_loss(
            table, learner
        )

    def test_encode_new_rows(self):
        learner = quantizer().train(make_table())
        new = make_table(seed=0)[:50] + np.float32(0.01)
        codes = learner.encode(new)
        assert codes.dtype == np.uint8
        assert mean_loss(new, learner, codes) < 1.2 * mean_loss(
            make_table(), learner
        )

    @pytest.mark.parametrize("warm", [False, True])
    def test_seed_repeats(self, warm, monkeypatch):
        if warm:
            monkeypatch.setattr(quantizer_run, "_WARM_ROWS", 1)
        table = make_table()
        one, two = (quantizer(seed=7).train(table) for _ in range(2))
        np.testing.assert_array_equal(one.codes, two.codes)
        np.testing.assert_array_equal(one.codebooks, two.codebooks)
        np.testing.assert_array_equal(one.encode(table), two.encode(table))
        other = quantizer(seed=8).train(table)
        assert (one.codes != other.codes).any()

    @pytest.mark.parametrize("warm", [False, True])
    def test_sample_weight_favours_rows(self, warm, monkeypatch):
        if warm:
            monkeypatch.setattr(quantizer_run, "_WARM_ROWS", 1)
        rng = np.random.default_rng(0)
        table = rng.normal(size=(200, 8)).astype("float32")
        weight = np.where(np.arange(200) < 20, 50.0, 1.0)
        plain = quantizer(2, 8, effort=0.3).train(table)
        learner = quantizer(2, 8, effort=0.3).train(table, weight)
        assert mean_loss(table[:20], learner, learner.codes[:20]) < 0.5 * (
            mean_loss(table[:20], plain, plain.codes[:20])
        )
        assert learner.history["loss"][-1] == pytest.approx(
            mean_loss(table, learner, weight=weight), rel=1e-4
        )

    def test_equal_weights_are_no_weights(self):
        table = make_table()
        plain = quantizer().train(table)
        equal = quantizer().train(table, np.full(300, 3.0))
        assert equal.history["loss"][-1] == pytest.approx(
            plain.history["loss"][-1], rel=0.1
        )

    @pytest.mark.parametrize(
        "table",
        [
            np.zeros((20, 3)),
            np.full((15, 4), 7.5),
            np.ones((1, 1)),
            np.array([[1.0, -2.0, 3.0]]),
        ],
        ids=["zeros", "constant", "one number", "one row"],
    )
    def test_tables_that_codes_hold_exactly(self, table):
        learner = quantizer(4, 16).train(table)
        for codes in (learner.codes, learner.encode(table)):
            np.testing.assert_allclose(learner.decode(codes), table, rtol=1e-6)

    def test_duplicates(self):
        table = np.repeat(make_table(3), 10, axis=0)
        learner = quantizer(4, 16, effort=1.0).train(table)
        energy = np.square(table - table.mean(axis=0)).sum(axis=1).mean()
        # The ridge pulls codewords that one row uses by 0.01 of their length,
        # in each of the codebooks.
        assert mean_loss(table, learner) < (4 * 0.01) ** 2 * energy

    def test_more_codewords_than_rows(self):
        table = make_table(50)
        learner = quantizer(4, 256).train(table)
        assert mean_loss(table, learner) < 0.1
        assert learner.codes.dtype == np.uint8

    def test_wide_codebooks(self):
        table = make_table(30)
        learner = quantizer(2, 5000).train(table)
        assert learner.codes.dtype == np.uint16
        assert mean_loss(table, learner) < 0.1

    def test_constant_column_and_one_column(self):
        table = make_table()
        table[:, 3] = 5.0
        rebuilt = (learner := quantizer().train(table)).decode(learner.codes)
        np.testing.assert_allclose(rebuilt[:, 3], 5.0, atol=1e-2)
        narrow = quantizer(3, 4).train(table[:, :1])
        assert narrow.codebooks.shape == (3, 4, 1)
        assert mean_loss(table[:, :1], narrow) < 0.05

    @pytest.mark.parametrize("kind", ["float16", "float64", "int32", "bool"])
    def test_dtypes_and_layouts(self, kind, tmp_path):
        table = (make_table(100) * 2).astype("int32").astype(kind)
        wanted = quantizer().train(np.asarray(table, "float32"))
        path = tmp_path / "table.npy"
        np.save(path, table)
        wide = np.zeros((200, 24), table.dtype)
        wide[::2, ::2] = table
        for same in (
            table,
            np.asfortranarray(table),
            wide[::2, ::2],
            np.load(path, mmap_mode="r"),
        ):
            learner = quantizer().train(same)
            np.testing.assert_array_equal(learner.codes, wanted.codes)

    def test_memory_beyond_the_table_is_bounded(self, tmp_path, monkeypatch):
        monkeypatch.setattr(validation, "_CHUNK_ELEMENTS", 1 << 15)
        monkeypatch.setattr(search, "_NOISE_BANK", 1)
        monkeypatch.setattr(beam_encoding, "_CHUNK_SCORES", 1 << 16)
        path = tmp_path / "table.npy"
        np.save(path, np.random.default_rng(0).random((9_000, 128), "float32"))
        table = np.load(path, mmap_mode="r")
        learner = quantizer(2, 4, effort=0.01)
        tracemalloc.start()
        learner.train(table)
        learner.encode(table)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < table.nbytes / 2

    def test_table_is_left_alone(self):
        table = make_table()
        before = table.copy()
        quantizer().train(table).encode(table)
        np.testing.assert_array_equal(table, before)

    def test_best_is_kept(self):
        table = np.random.default_rng(0).normal(size=(40, 6))
        learner = quantizer(3, 16, effort=1.0).train(table)
        assert learner.history["loss"][-1] == min(learner.history["loss"])

    def test_more_effort_is_more_faithful(self):
        table = np.random.default_rng(0).normal(size=(500, 16))
        little, much = (
            quantizer(6, 8, effort=effort).train(table).history["loss"]
            for effort in (0.02, 1.0)
        )
        assert len(little) < len(much)
        assert much[-1] < little[-1]

    @pytest.mark.parametrize("warm", [False, True])
    def test_max_time(self, warm, monkeypatch):
        if warm:
            monkeypatch.setattr(quantizer_run, "_WARM_ROWS", 1)
        clock = iter(np.arange(0, 1e6, 0.01))
        monkeypatch.setattr(
            quantizer_run.time, "monotonic", lambda: float(next(clock))
        )
        table = make_table()
        learner = quantizer(effort=1e6, max_time=3.0).train(table)
        assert next(clock) < 6.0
        assert learner.history["loss"][-1] == pytest.approx(
            mean_loss(table, learner), rel=1e-4
        )
        assert learner.history["loss"][-1] < 12 * 0.3**2

    def test_max_time_too_short_for_anything(self):
        table = make_table()
        learner = quantizer(max_time=1e-9).train(table)
        energy = np.square(table - table.mean(axis=0)).sum(axis=1).mean()
        assert mean_loss(table, learner) <= energy

    @pytest.mark.parametrize("when", [0, 1, 5])
    @pytest.mark.parametrize("warm", [False, True])
    def test_interrupt_keeps_what_was_found(
        self, when, warm, monkeypatch, capsys
    ):
        target = (
            (StraightThroughEncoder, "train_on_batch")
            if warm
            else (search.Sweep, "run")
        )
        monkeypatch.setattr(quantizer_run, "_WARM_ROWS", 1 if warm else 10**9)
        original, calls = getattr(*target), []

        def interrupted(*args):
            calls.append(1)
            if len(calls) == when + 1:
                raise KeyboardInterrupt
            return original(*args)

        monkeypatch.setattr(*target, interrupted)
        table = make_table()
        learner = quantizer(effort=1.0).train(table)
        assert "Interrupted" in capsys.readouterr().out
        assert len(calls) < 10
        energy = np.square(table - table.mean(axis=0)).sum(axis=1).mean()
        loss = mean_loss(table, learner)
        assert loss < 0.8 * energy
        assert learner.history["loss"][-1] == pytest.approx(loss, rel=1e-4)

    def test_progress(self, capsys):
        AdditiveQuantizer(2, 4, effort=0.1, seed=0).train(make_table(30))
        assert "loss" in capsys.readouterr().out
        quantizer().train(make_table(30))
        assert capsys.readouterr().out == ""

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"num_codebooks": 0}, "`num_codebooks` must be"),
            ({"codebook_size": 1}, "`codebook_size` must be"),
            ({"codebook_size": 65537}, "`codebook_size` must be"),
            ({"effort": 0}, "`effort` must be"),
            ({"effort": True}, "`effort` must be"),
            ({"max_time": -1}, "`max_time` must be"),
        ],
    )
    def test_bad_arguments(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            AdditiveQuantizer(**arguments)

    def test_bad_tables(self):
        table = make_table(20)
        table[7, 2] = np.nan
        with pytest.raises(ValueError, match="NaN or infinity in row 7"):
            quantizer().train(table)
        with pytest.raises(ValueError, match="two axes"):
            quantizer().train(np.zeros((0, 4)))
        with pytest.raises(ValueError, match="`sample_weight` must"):
            quantizer().train(make_table(20), np.ones(19))
        learner = quantizer().train(make_table(20))
        with pytest.raises(ValueError, match="must have 12 columns"):
            learner.encode(np.zeros((3, 5)))

    def test_untrained(self):
        for use in (quantizer().encode, quantizer().decode):
            with pytest.raises(ValueError, match="call `train` first"):
                use(np.zeros((3, 4)))

"""LiteRT files on one thread."""

from benchmarks.common.timing import clocks


def load(path, shape=None):
    """A function of inputs that returns the `clocks` of one run of a file.

    Args:
        path: Path of the file, which has one input.
        shape: Shape of the input, if the file leaves it open.
    """
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path), num_threads=1)
    place = interpreter.get_input_details()[0]["index"]
    if shape is not None:
        interpreter.resize_tensor_input(place, shape)
    interpreter.allocate_tensors()

    def run(inputs):
        interpreter.set_tensor(place, inputs)
        start = clocks()
        interpreter.invoke()
        return clocks() - start

    return run

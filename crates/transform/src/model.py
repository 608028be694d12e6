"""Computes predictions with a script that has SageMaker's model_fn and predict_fn.

Reads batches from standard input: a line of JSON, {"shape": [N, 3, H, W]}, and that many f32 in native byte order.
Writes a line of JSON for each: {"rows": [..]}, for each image {"Ok": its prediction} or {"Err": reason}.
"""

import importlib.util
import inspect
import json
import os
import queue
import sys
import threading
import traceback

# The script may print: its standard output is our standard error.
answers = os.fdopen(os.dup(1), "w", buffering=1 << 16)
os.dup2(2, 1)
# Nor does it read batches: its standard input is empty.
batches = os.fdopen(os.dup(0), "rb", buffering=1 << 16)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def answer(value):
    json.dump(value, answers)
    answers.write("\n")
    answers.flush()


def cannot(why):
    answer({"cannot": why})
    leave(0)


def leave(code):
    """Ends at once: the thread that reads ahead holds a lock that the interpreter would wait for."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def load(path):
    folder, name = os.path.split(os.path.abspath(path))
    sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(os.path.splitext(name)[0], path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def call(function, *given):
    """With the toolkit's last argument, the context, where the function takes it: there is none here."""
    try:
        takes = len(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        takes = len(given)
    return function(*given, *[None] * (takes - len(given)))


def arrays():
    """What makes the data of predict_fn of a batch's numbers: a torch.Tensor, or an array of NumPy without torch."""
    try:
        import numpy
    except ImportError:
        cannot("this Python has no NumPy: pip install numpy")
    try:
        import torch
    except ImportError:
        return numpy, lambda array: array, None
    return numpy, torch.from_numpy, torch


def default_predict(torch):
    def predict(data, model):
        with torch.no_grad():
            return model(data)

    return predict


def rows_of(made, count):
    for step in ("detach", "cpu"):
        made = getattr(made, step)() if hasattr(made, step) else made
    made = made.tolist() if hasattr(made, "tolist") else made
    if not isinstance(made, (list, tuple)) or len(made) != count:
        what = f"{len(made)} items" if isinstance(made, (list, tuple)) else type(made).__name__
        raise TypeError(f"predict_fn has to return one item for each of the {count} images, and returned {what}")
    return list(made)


def plain(value):
    """Tensors and arrays inside of a row."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a prediction contains {type(value).__name__}, which JSON does not know")


def outcome(row):
    try:
        text = json.dumps(row, allow_nan=False, default=plain, ensure_ascii=False)
        text.encode()
        return {"Ok": json.loads(text, parse_int=whole)}
    except UnicodeEncodeError:
        return {"Err": "the model makes text of it that is not Unicode"}
    except OverflowError as error:
        return {"Err": str(error)}
    except ValueError:
        return {"Err": "the model makes NaN or infinite numbers of it"}


def whole(digits):
    number = int(digits)
    if not -(1 << 63) <= number < 1 << 64:
        raise OverflowError(f"the model makes a whole number of {len(digits)} digits of it, more than 64 bits hold")
    return number


def read(numpy, into):
    """Reads ahead, so that the next batch is here when the present one is computed."""
    while True:
        head = batches.readline()
        if not head:
            return into.put(None)
        shape = json.loads(head)["shape"]
        array = numpy.empty(shape, numpy.float32)
        view = memoryview(array).cast("B")
        done = 0
        while done < len(view):
            count = batches.readinto(view[done:])
            if not count:
                return into.put(None)
            done += count
        into.put(array)


def main():
    script, model_dir = sys.argv[1:3]
    numpy, tensor, torch = arrays()
    module = load(script)
    model_fn = getattr(module, "model_fn", None)
    if model_fn is None:
        cannot("it has no model_fn(model_dir)")
    predict_fn = getattr(module, "predict_fn", None)
    if predict_fn is None and torch is None:
        cannot("it has no predict_fn(data, model), and without torch there is no default one")
    model = call(model_fn, model_dir)
    if predict_fn is None:
        predict_fn = default_predict(torch)
        if hasattr(model, "eval"):
            model.eval()
    answer({"ready": True})
    ahead = queue.Queue(1)
    threading.Thread(target=read, args=(numpy, ahead), daemon=True).start()
    while (batch := ahead.get()) is not None:
        count = len(batch)
        answer({"rows": [outcome(row) for row in rows_of(call(predict_fn, tensor(batch), model), count)]})


try:
    main()
except SystemExit as error:
    print(f"the script called sys.exit({error.code!r})", file=sys.stderr)
    leave(1)
except BaseException:
    traceback.print_exc()
    leave(1)
leave(0)

"""What is said about wrong arguments and wrong moments; that nothing hangs."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
import threading
import warnings

import numpy as np
import pytest
from conftest import HAS_TORCH, in_fork, needs_torch, picture, wait_for, write_png
from test_loader import CROP, WHOLE, epoch

import stokehold
from stokehold import transforms as T

ARGUMENTS = [
    ({"batch_size": 0}, "batch_size=0: must be at least 1"),
    ({"batch_size": -3}, "batch_size=-3: must be at least 1"),
    ({"num_workers": 0}, "num_workers=0: must be at least 1, or None"),
    ({"num_workers": -1}, "num_workers=-1"),
    ({"num_workers": 5000}, "5000 workers: must be auto or 1 to 1024"),
    ({"prefetch": -1}, "prefetch=-1: must be at least 0"),
    ({"seed": -1}, r"seed=-1: must be at least 0 and below 2\^64"),
    ({"seed": 2**64}, r"seed=18446744073709551616: must be at least 0 and below 2\^64"),
    ({"rank": 2, "world_size": 2}, "rank 2: must be below the world size, 2"),
    ({"world_size": 0}, "world_size=0"),
    ({"dtype": "float64"}, "dtype='float64': there are float32, float16, bfloat16 and uint8"),
    ({"dtype": np.int64}, "there are float32"),
    ({"dtype": "uint8"}, r"operation 4 \(Normalize\): it needs floats"),
    ({"device": "tpu:0"}, "device='tpu:0'"),
    ({"split": "test"}, 'split="test": there are "train" and "val"'),
    ({"bad_images": "ignore"}, 'bad-image policy "ignore": must be error, skip or substitute'),
    ({"executor": "gpu"}, "executor='gpu' makes batches on a GPU"),
    ({"executor": "quick"}, "no executor is called 'quick'"),
    ({"drop_last": True, "batch_size": 100}, "fill no batch of 100"),
]


@pytest.mark.parametrize(("options", "message"), ARGUMENTS)
def test_arguments_out_of_range_are_value_errors(folder, options, message):
    with pytest.raises(ValueError, match=message) as raised:
        stokehold.Loader(folder, CROP, **options)
    assert isinstance(raised.value, stokehold.OptionError)


def test_arguments_of_another_type_are_named(folder):
    for options, message in [
        ({"batch_size": "many"}, "batch_size='many': must be a whole number"),
        ({"seed": 1.5}, "seed=1.5: must be a whole number"),
        ({"num_workers": [1]}, r"num_workers=\[1\]: must be a whole number"),
        ({"shuffle": "yes"}, "shuffle='yes': must be True or False"),
        ({"samples": None}, "samples=None: must be True or False"),
    ]:
        with pytest.raises(TypeError, match=message):
            stokehold.Loader(folder, CROP, **options)
    with pytest.raises(TypeError, match="workers"):
        stokehold.Loader(folder, CROP, workers=3)
    assert len(stokehold.Loader(folder, CROP, batch_size=np.int64(4), shuffle=np.bool_(True))) == 10


def test_data_that_is_none(folder, tmp_path):
    for data, error, message in [
        (tmp_path / "nowhere", OSError, "nowhere: no such folder"),
        (tmp_path, OSError, "no class folder in it"),
        ([], ValueError, "there are no images to load"),
        (7, ValueError, "data=7: must be a folder"),
        ([("a.jpg",)], ValueError, r"data\[0\]: .* pairs of a path and a label"),
        ([("a.jpg", 0), ("b.jpg", -1)], ValueError, r"data\[1\]: label -1 of b.jpg; labels are 0 to 4294967295"),
        ([("a.jpg", "cat")], ValueError, r"data\[0\]: "),
    ]:
        with pytest.raises(error, match=message):
            stokehold.Loader(data, CROP)
    with pytest.raises(stokehold.DataError, match="no val/ beside train/"):
        stokehold.Loader(folder / "train", CROP, split="val")
    with pytest.raises(RuntimeError, match="the list broke"):
        stokehold.Loader((pair for pair in broken()), CROP)


def broken():
    yield "a.jpg", 0
    raise RuntimeError("the list broke")


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed in this environment")
def test_cuda_without_a_gpu(folder):
    import torch

    if torch.cuda.is_available():
        images, labels = next(iter(stokehold.Loader(folder, CROP, device="cuda:0")))
        assert images.is_cuda and labels.is_cuda
        return
    with pytest.raises(ValueError, match="device='cuda:0': torch sees no CUDA device; use device='cpu'"):
        stokehold.Loader(folder, CROP, device="cuda:0")


def test_images_of_one_size_need_no_resize(folder, tmp_path):
    for operations, size in [([], (20, 24)), ([T.RandomHorizontalFlip()], (20, 24)), ([T.Resize(40)], (40, 48))]:
        compose = T.Compose([*operations, T.ToTensor()])
        assert compose.size is None
        loader = stokehold.Loader(folder, compose, batch_size=4)
        assert loader.size == size and tuple(next(iter(loader))[0].shape) == (4, 3, *size)
    for number in range(3):
        write_png(tmp_path / "a" / f"{number}.png", picture(number, *((30, 20) if number == 2 else (20, 24))))
    loader = stokehold.Loader(tmp_path, T.Compose([T.ToTensor()]), batch_size=4)
    with pytest.raises(stokehold.DataError, match="2.png: it has 20x30 pixels and the first image 24x20.*CenterCrop"):
        list(loader)


def test_what_lies_in_a_folder_and_is_not_read_is_a_warning(tmp_path):
    for name in ("a/0.png", ".ipynb_checkpoints/0.png"):
        write_png(tmp_path / name, picture(0))
    (tmp_path / "a/1.bmp").write_bytes(b"BM")
    with pytest.warns(UserWarning) as told:
        stokehold.Loader(tmp_path, CROP)
    texts = [str(one.message) for one in told]
    assert "1 file is not read: 1 .bmp (a/1.bmp)" in texts[1] and "ImageFolder takes 1 of them" in texts[1]
    assert ".ipynb_checkpoints, a hidden folder that Jupyter makes, is class 0 with 1 image" in texts[0]
    assert all(one.filename == __file__ for one in told)
    (tmp_path / "flat").mkdir()
    write_png(tmp_path / "flat/0.png", picture(0))
    (tmp_path / "flat/metadata.csv").write_text("file_name,label\n0.png,dog\n")
    with pytest.raises(stokehold.DataError, match="metadata.csv lies there, with the columns file_name, label"):
        stokehold.Loader(tmp_path / "flat", CROP)


def test_one_iteration_at_a_time(folder):
    loader = stokehold.Loader(folder, CROP, batch_size=4)
    first = iter(loader)
    next(first)
    with pytest.raises(RuntimeError, match="is running"):
        loader.load_state_dict(loader.state_dict())
    # A look at one batch, whose iterator stays: in a notebook its name, or the traceback of an interrupted cell.
    assert len(epoch(loader)) == 10
    for _ in range(2):
        with pytest.raises(stokehold.UsageError, match="another iteration of this loader has begun.*make a second loader"):
            next(first)
    del first
    assert len(epoch(loader)) == 10
    second = iter(loader)
    loader.stop()
    assert next(second, None) is None
    third = iter(loader)
    assert next(second, None) is None and len(next(third)[0]) == 4


def test_who_has_taken_all_batches_can_begin_again(folder):
    """Nobody has to wait for StopIteration."""
    counted, walked = (stokehold.Loader(folder, CROP, batch_size=8, samples=True) for _ in range(2))
    batches = iter(counted)
    for expected in [*walked, *walked]:
        assert next(batches)[2].tolist() == expected[2].tolist()
        if counted.state_dict()["batch"] == len(counted):
            old, batches = batches, iter(counted)
            assert next(old, None) is None
    end = iter(walked)
    for _ in range(len(walked)):
        next(end)
    walked.load_state_dict(counted.state_dict())
    assert next(end, None) is None and walked.epoch == 2 and len(list(walked)) == 5


def test_a_state_behind_the_last_batch_has_none_left(folder):
    loader = stokehold.Loader(folder, CROP, batch_size=8)
    states = [loader.state_dict() for _ in loader]
    behind = loader.state_dict()
    again = stokehold.Loader(folder, CROP, batch_size=8)
    again.load_state_dict(states[-1])
    assert [len(list(again)) for _ in range(2)] == [0, 5] and again.epoch == 2
    again.load_state_dict(behind)
    assert again.epoch == 1 and len(list(again)) == 5


def test_an_iteration_of_which_nothing_was_taken_has_not_been(folder):
    loader = stokehold.Loader(folder, CROP, batch_size=8)
    iter(loader)
    assert loader.epoch == 0
    next(iter(loader))
    assert loader.epoch == 1
    batches = iter(loader)
    for _ in range(2):
        next(batches)
    state = loader.state_dict()
    loader.stop()
    loader.load_state_dict(state)
    iter(loader)
    unused = iter(loader)
    loader.stop()
    assert next(unused, None) is None and loader.state_dict() == state and len(list(loader)) == 3


def test_nothing_after_close(folder):
    with stokehold.Loader(folder, CROP, batch_size=4) as loader:
        batches = iter(loader)
        next(batches)
    with pytest.raises(stokehold.UsageError, match="closed during this iteration"):
        next(batches)
    with pytest.raises(stokehold.UsageError, match="the loader is closed; make a new one"):
        iter(loader)
    loader.close()


def test_loaders_are_not_pickled(folder):
    with pytest.raises(stokehold.UsageError, match="cannot be pickled; make it in the process that uses it"):
        pickle.dumps(stokehold.Loader(folder, CROP))


def test_a_fork_is_an_exception_and_not_a_hang(folder):
    loader = stokehold.Loader(folder, CROP, batch_size=2)
    batches = iter(loader)
    held = next(batches)

    def child():
        nonlocal loader, batches, held
        for use in (lambda: next(batches), lambda: iter(loader), loader.stop, loader.close, loader.state_dict):
            with pytest.raises(stokehold.UsageError, match=f"made by process {os.getppid()}.*spawn"):
                use()
        del held, batches, loader
        assert len(epoch(stokehold.Loader(folder, CROP, batch_size=2))) == 19

    for _ in range(10):
        assert in_fork(child) == 0
    assert len(list(batches)) == 18


def test_made_before_the_fork_and_dropped_in_it(folder):
    loader = stokehold.Loader(folder, CROP, batch_size=2)
    assert len(epoch(loader)) == 19

    def child():
        nonlocal loader
        del loader

    assert in_fork(child) == 0


def test_buckets_in_a_fork_are_an_exception_and_not_a_hang(monkeypatch):
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)

    def use(message):
        with pytest.raises(stokehold.DataError, match=message):
            stokehold.Loader("az://container/images", CROP)

    use("Account must be specified")
    assert in_fork(lambda: use(f"process {os.getppid()} made the threads for requests.*by spawn")) == 0


@pytest.fixture(scope="session")
def endless(tmp_path_factory):
    """Data of which a batch takes many minutes."""
    path = tmp_path_factory.mktemp("large") / "large.png"
    write_png(path, np.tile(picture(0, 100, 100), (20, 20, 1)))
    return [(path, 0)] * 1_000_000


def test_other_threads_run_while_a_batch_is_waited_for(endless):
    loader = stokehold.Loader(endless, WHOLE, batch_size=100_000, num_workers=1)
    batches, seen = iter(loader), []

    def wait():
        try:
            next(batches)
        except stokehold.UsageError as error:
            seen.append(error)

    def waits():
        frame = sys._current_frames().get(thread.ident)
        return frame is not None and frame.f_code.co_name == "__next__"

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    wait_for(waits, "a thread that waits")
    assert thread.is_alive() and not seen
    loader.close()
    thread.join(60)
    assert not thread.is_alive() and "closed during this iteration" in str(seen[0])


def test_ctrl_c_ends_the_wait(endless, tmp_path):
    script = textwrap.dedent(
        f"""
        import os, signal, threading
        import stokehold
        from stokehold import transforms as T

        # Whoever started this may have it ignore the signal.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        whole = T.Compose([T.CenterCrop(8), T.ToTensor()])
        data = [({str(endless[0][0])!r}, 0)] * 1_000_000
        with stokehold.Loader(data, whole, batch_size=1_000_000) as loader:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                next(iter(loader))
            except KeyboardInterrupt:
                print("interrupted")
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False
    )
    assert (done.stdout, done.returncode) == ("interrupted\n", 0), done.stderr


def test_an_interpreter_that_ends_in_the_midst_ends(endless, tmp_path):
    """Threads are at work and nobody closes anything."""
    script = (
        "import stokehold\n"
        f"loader = stokehold.Loader([({str(endless[0][0])!r}, 0)] * 100, 'imagenet-eval', batch_size=2)\n"
        "batches = iter(loader)\n"
        "kept = next(batches)\n"
        "print('over')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False
    )
    assert (done.stdout, done.returncode, done.stderr) == ("over\n", 0, "")


@needs_torch
def test_tensors_outlive_their_loader(folder):
    import torch

    images, labels = next(iter(stokehold.Loader(folder, WHOLE, shuffle=False)))
    total = images.double().sum()
    junk = [torch.full((200, 200), 7.0) for _ in range(100)]
    assert images.double().sum() == total and labels.tolist() == [0] * 12 + [1] * 9 + [2] * 11 and junk


def test_help_reads(capsys):
    help(stokehold.Loader)
    text = capsys.readouterr().out
    assert "(N, 3, H, W)" in text and "state_dict" in text and "_core" not in text
    help(T.RandomResizedCrop)
    assert "range of the crop's share of the area" in capsys.readouterr().out


@needs_torch
def test_ranks_that_each_load_everything_are_told(folder, tmp_path):
    import torch

    loader = stokehold.Loader(folder, CROP, batch_size=4)
    ranks = torch.multiprocessing.spawn(_rank, (str(folder), str(tmp_path / "store")), nprocs=2, join=False)
    while not ranks.join():
        pass
    assert len(epoch(loader)) == 10


def _rank(rank, folder, store):
    import torch

    torch.distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=2)
    with pytest.warns(RuntimeWarning, match="2 ranks, and each loads all images"):
        assert len(epoch(stokehold.Loader(folder, CROP, batch_size=4))) == 10
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(epoch(stokehold.Loader(folder, CROP, batch_size=4, rank=rank, world_size=2))) == 5
    torch.distributed.destroy_process_group()

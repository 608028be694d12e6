"""The executor gpu: the batches of the CPU's loader, made by a device, whatever happens on the way.

The device is ``STOKEHOLD_TEST_DEVICE``, such as ``cuda:0``, or else the first Vulkan device, which Mesa's lavapipe is one of. Tests
about the memory of a CUDA device need one.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
import types
import warnings

import numpy as np
import pytest
from conftest import HAS_TORCH, in_fork, needs_torch, without_torch
from test_loader import pairs  # noqa: F401

import stokehold
from stokehold import transforms as T

TRAIN = T.Compose(
    [T.RandomResizedCrop(40), T.RandomHorizontalFlip(), T.ColorJitter(0.2, 0.2, 0.2), T.ToTensor(), T.Normalize(T.MEAN, T.STD)]
)
BYTES = T.Compose([T.RandomResizedCrop(40), T.ToTensor()])
NAME = os.environ.get("STOKEHOLD_TEST_DEVICE", "vulkan:0")
OPTIONS = {"batch_size": 5, "seed": 6, "samples": True, "num_workers": 2}


@pytest.fixture(scope="session")
def device(folder):
    """The name of a device that makes batches."""
    try:
        stokehold.Loader(folder, TRAIN, executor="gpu", device=NAME).close()
    except stokehold.OptionError as error:
        # A run that names its device must not pass by skipping everything.
        if "STOKEHOLD_TEST_DEVICE" in os.environ:
            raise
        pytest.skip(f"no device makes batches ({error}) in this environment")
    return NAME


@pytest.fixture
def cuda(device):
    """The same, of a CUDA device."""
    if not device.startswith("cuda"):
        pytest.skip("STOKEHOLD_TEST_DEVICE names no CUDA device in this environment")
    return device


class Tensor(ctypes.Structure):
    """DLPack's ``DLManagedTensor``, of ABI 0."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ]


def driver():
    """CUDA's driver; a stand-in for it has only the second name."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ctypes.CDLL("libcuda.so")


class Consumer:
    """What a library does with a capsule: it takes the tensor over, and calls its deleter in the end."""

    def __init__(self, memory, **how):
        capsule = memory.__dlpack__(**how)
        get, rename = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_SetName
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
        self.address = get(capsule, b"dltensor")
        assert rename(capsule, b"used_dltensor") == 0
        self.tensor = Tensor.from_address(self.address)
        self.shape = [self.tensor.shape[axis] for axis in range(self.tensor.ndim)]

    def array(self):
        """A copy of the numbers, by the driver."""
        kind = {(2, 32): np.float32, (2, 16): np.float16, (4, 16): np.uint16, (1, 8): np.uint8}[self.tensor.code, self.tensor.bits]
        numbers = np.empty(self.shape, kind)
        cuda, context = driver(), ctypes.c_void_p()
        assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), self.tensor.device[1]) == 0
        assert cuda.cuCtxSetCurrent(context) == 0
        to, begin = ctypes.c_void_p(numbers.ctypes.data), ctypes.c_uint64(self.tensor.data)
        assert cuda.cuMemcpyDtoHAsync_v2(to, begin, ctypes.c_size_t(numbers.nbytes), None) == 0
        assert cuda.cuCtxSynchronize() == 0
        return numbers

    def delete(self):
        self.tensor.deleter(self.address)


def plain(images):
    """A copy of images or numbers in the CPU's memory, bfloat16 as its bits."""
    if hasattr(images, "cpu"):
        images = images.cpu()
        return (images.view(dtype=_torch().int16) if images.dtype == _torch().bfloat16 else images).numpy().copy()
    if isinstance(images, np.ndarray):
        return images.copy()
    consumer = Consumer(images)
    numbers = consumer.array()
    consumer.delete()
    return numbers


def _torch():
    import torch

    return torch


def epoch(loader):
    return [tuple(plain(part) for part in batch) for batch in loader]


def same(left, right):
    return len(left) == len(right) and all(
        x.dtype == y.dtype and np.array_equal(x, y) for a, b in zip(left, right) for x, y in zip(a, b)
    )


def on(device, data, pipeline=TRAIN, **more):
    return stokehold.Loader(data, pipeline, executor="gpu", device=device, **{**OPTIONS, **more})


def on_cpu(data, pipeline=TRAIN, **more):
    return stokehold.Loader(data, pipeline, **{**OPTIONS, **more})


@pytest.mark.parametrize("decode", ["hybrid", "device"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "uint8"])
def test_batches_are_those_of_fused_to_the_bit(device, pictures, dtype, decode):
    if dtype == "bfloat16" and not HAS_TORCH:
        pytest.skip("NumPy has no bfloat16, and torch is not installed in this environment")
    pipeline = BYTES if dtype == "uint8" else TRAIN
    loader = on(device, pictures, pipeline, dtype=dtype, gpu_decode=decode)
    expected = on_cpu(pictures, pipeline, dtype=dtype)
    assert len(loader) == len(expected) > 2
    for _ in range(2):
        made = epoch(loader)
        assert same(made, epoch(expected))
        assert len(made[0][0].shape) == 4 and made[0][0].std() > 0


def test_pictures_that_are_no_jpegs(device, folder):
    assert same(epoch(on(device, folder)), epoch(on_cpu(folder)))


def test_masks_go_along(device, pairs):
    folder, _ = pairs
    pipeline = T.Compose([T.RandomResizedCrop(20), T.RandomHorizontalFlip(), T.ToTensor()])
    made = epoch(on(device, folder, pipeline, batch_size=2))
    assert same(made, epoch(on_cpu(folder, pipeline, batch_size=2)))
    assert made[0][1].shape == (2, 20, 20) and made[0][1].dtype == np.int64


def test_either_goes_on_where_the_other_stood(device, pictures):
    whole = epoch(on_cpu(pictures))
    for first, then in [(on(device, pictures), on_cpu(pictures)), (on_cpu(pictures), on(device, pictures))]:
        batches = iter(first)
        begun = [tuple(plain(part) for part in next(batches)) for _ in range(2)]
        then.load_state_dict(first.state_dict())
        assert same(begun + epoch(then), whole)
        first.stop()
        assert first.epoch == then.epoch == 1
        assert same(epoch(first), epoch(then))


@pytest.mark.parametrize("decode", ["hybrid", "device"])
@pytest.mark.parametrize("policy", ["skip", "substitute"])
def test_bad_images_are_met_alike(device, pictures, tmp_path, policy, decode):
    files = sorted((pictures / "train").glob("*/*.jpg"))
    data = []
    for number, file in enumerate(files):
        path = tmp_path / f"{number}.jpg"
        content = file.read_bytes()
        path.write_bytes(content[:-40] if number % 5 == 1 else content[:200] if number % 5 == 2 else content)
        data.append((path, number % 2))

    def taken(loader):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            batches = epoch(loader)
        return batches, sorted(str(warning.message) for warning in said), sorted(loader.bad_images())

    made = taken(on(device, data, bad_images=policy, gpu_decode=decode))
    expected = taken(on_cpu(data, bad_images=policy))
    assert same(made[0], expected[0]) and made[1:] == expected[1:] and len(made[2]) > 2


def test_a_bad_image_can_be_an_error(device, pictures, tmp_path):
    file = tmp_path / "broken.jpg"
    file.write_bytes(next((pictures / "train").glob("*/*.jpg")).read_bytes()[:300])
    loader = on(device, [(file, 0)] * 9, bad_images="error")
    with pytest.raises(stokehold.DataError, match=r"broken\.jpg"):
        epoch(loader)


def test_batches_that_are_kept_keep_their_numbers(device, pictures):
    loader = on(device, pictures)
    kept = [(batch[0], plain(batch[0])) for batch in [*loader, *loader]]
    epoch(loader)
    assert len(kept) == 2 * len(loader)
    for images, numbers in kept:
        assert np.array_equal(plain(images), numbers)


def test_leaving_a_loop_and_closing(device, pictures):
    loader = on(device, pictures)
    for _ in range(3):
        for _ in loader:
            break
    batches = iter(loader)
    next(batches)
    again = iter(loader)
    with pytest.raises(stokehold.UsageError, match="another iteration"):
        next(batches)
    loader.close()
    with pytest.raises(stokehold.UsageError, match="closed during this iteration"):
        next(again)


def test_ctrl_c_ends_the_wait_for_a_batch(device, pictures, tmp_path):
    file = next((pictures / "train").glob("*/*.jpg"))
    script = textwrap.dedent(
        f"""
        import os, signal, threading, stokehold
        signal.signal(signal.SIGINT, signal.default_int_handler)
        data = [({str(file)!r}, 0)] * 1_000_000
        with stokehold.Loader(data, "imagenet-eval", batch_size=5000, executor="gpu", device={device!r}) as loader:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                next(iter(loader))
            except KeyboardInterrupt:
                print("interrupted")
        """
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
    assert (done.stdout, done.returncode) == ("interrupted\n", 0), done.stderr


def test_an_interpreter_that_ends_in_the_midst_ends(device, pictures, tmp_path):
    script = (
        "import stokehold\n"
        f"loader = stokehold.Loader({str(pictures)!r}, 'imagenet-eval', batch_size=2, executor='gpu', device={device!r})\n"
        "batches = iter(loader)\n"
        "kept = next(batches)\n"
        "print('over')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
    assert (done.stdout, done.returncode) == ("over\n", 0), done.stderr


def test_a_fork_is_an_exception_and_not_a_hang(device, pictures):
    loader = on(device, pictures)
    batches = iter(loader)
    held = next(batches)

    def child():
        nonlocal loader, batches, held
        for use in (lambda: next(batches), lambda: iter(loader), loader.stop, loader.close, loader.state_dict):
            with pytest.raises(stokehold.UsageError, match=f"made by process {os.getppid()}.*spawn"):
                use()
        with pytest.raises(stokehold.OptionError, match=f"process {os.getppid()} has used devices.*spawn"):
            on(device, pictures)
        del held, batches, loader
        assert len(epoch(on_cpu(pictures))) > 2

    for _ in range(5):
        assert in_fork(child) == 0
    assert len(list(batches)) == len(loader) - 1


def test_a_batch_that_needs_too_much_memory_says_what_to_change(device, pictures):
    loader = on(device, pictures, gpu_memory_budget=100_000)
    with pytest.raises(stokehold.OptionError, match=r"raise the budget \(gpu_memory_budget\) or .* smaller \(batch_size\)"):
        next(iter(loader))


@needs_torch
def test_scripts_of_torch_take_it(device, pictures):
    from stokehold.torch import DataLoader, ImageFolder

    data = ImageFolder(pictures / "train", TRAIN)

    def seeded(**more):
        _torch().manual_seed(3)
        return epoch(DataLoader(data, 4, shuffle=True, **more))

    assert same(seeded(pin_memory=True, executor="gpu", device=device), seeded())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"executor": "gpu"}, r"device='cpu': executor='gpu' makes batches on a GPU; give device='cuda:0' or 'vulkan:0'"),
        ({"executor": "gpu", "device": "tpu:0"}, r"device='tpu:0': .* give device='cuda:0' or 'vulkan:0'"),
        ({"executor": "gpu", "device": "vulkan:first"}, r"no device is called 'vulkan:first'"),
        ({"executor": "gpu", "device": "vulkan:99"}, r"vulkan: .*(no device 99|--features vulkan)"),
        ({"executor": "gpu", "device": "cuda:99"}, r"cuda: .*(no device 99|--features cuda|install)"),
        ({"executor": "gpu", "device": "vulkan:0", "gpu_decode": "nvjpeg"}, r"'nvjpeg'; there are hybrid and device"),
        ({"executor": "gpu", "device": "vulkan:0", "gpu_memory_budget": 0}, r"gpu_memory_budget=0: must be at least 1"),
        ({"executor": "auto"}, r"executor='auto': .* timing training steps"),
        ({"executor": "tpu"}, r"no executor is called 'tpu'"),
        ({"device": "vulkan:0"}, r"device='vulkan:0': executor='fused' does not use it"),
        ({"gpu_decode": "device"}, r"gpu_decode and gpu_memory_budget are of executor=\"gpu\""),
        ({"gpu_memory_budget": 1 << 30}, r"gpu_decode and gpu_memory_budget are of executor=\"gpu\""),
    ],
)
def test_what_cannot_be_is_refused(folder, options, message):
    with pytest.raises(stokehold.OptionError, match=message):
        stokehold.Loader(folder, TRAIN, **options)


def test_the_budget_is_a_whole_number(folder):
    with pytest.raises(TypeError, match="gpu_memory_budget=1.5: must be a whole number"):
        stokehold.Loader(folder, TRAIN, executor="gpu", device="vulkan:0", gpu_memory_budget=1.5)


@without_torch
def test_a_cuda_devices_images_are_tensors_of_dlpack(cuda, pictures):
    loader = on(cuda, pictures)
    (images, _, _), (expected, _, _) = next(iter(loader)), next(iter(on_cpu(pictures)))
    assert images.__dlpack_device__() == (2, int(cuda.partition(":")[2]))
    for how in ({}, {"stream": 1}, {"stream": 2}, {"stream": -1}, {"stream": None, "copy": False}):
        consumer = Consumer(images, **how)
        tensor = consumer.tensor
        assert list(tensor.device) == [2, 0] and consumer.shape == [5, 3, 40, 40] and tensor.byte_offset == 0
        assert [tensor.strides[axis] for axis in range(4)] == [4800, 1600, 40, 1]
        assert (tensor.code, tensor.bits, tensor.lanes) == (2, 32, 1)
        assert np.array_equal(consumer.array(), expected)
        consumer.delete()


@without_torch
def test_a_stream_that_is_none_is_refused(cuda, pictures):
    images = next(iter(on(cuda, pictures)))[0]
    for stream in (0, -2, "one", 1.5):
        with pytest.raises((ValueError, BufferError)):
            images.__dlpack__(stream=stream)
    for how in ({"copy": True}, {"dl_device": (1, 0)}, {"dl_device": (2, 7)}):
        with pytest.raises(BufferError):
            images.__dlpack__(**how)


@without_torch
def test_memory_is_the_consumers_until_its_deleter_runs(cuda, pictures):
    loader = on(cuda, pictures)
    consumers, expected = [], epoch(on_cpu(pictures))
    for images, _, _ in loader:
        consumers.append(Consumer(images, stream=1))
        del images
    epoch(loader)
    assert len({consumer.tensor.data for consumer in consumers}) == len(consumers)
    for consumer, (images, _, _) in zip(consumers, expected):
        assert np.array_equal(consumer.array(), images)
        consumer.delete()


@without_torch
@pytest.mark.parametrize("how", [{"stream": 1}, {"stream": 2}, {"stream": -1}, {}])
def test_memory_that_is_given_back_is_used_again(cuda, pictures, how):
    loader = on(cuda, pictures, T.Compose([T.RandomResizedCrop(160), T.ToTensor()]))

    def free():
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        assert driver().cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
        return free.value

    taken, before = 0, None
    for _ in range(6):
        for images, _, _ in loader:
            consumer = Consumer(images, **how)
            if before is None:
                consumer.array()  # which makes the device this thread's
                before = free()
            taken += 4 * int(np.prod(consumer.shape))
            del images
            consumer.delete()
    assert before - free() < taken / 3, (before, free(), taken)


@without_torch
def test_a_fork_cannot_lend_a_cuda_devices_memory(cuda, pictures):
    images = next(iter(on(cuda, pictures)))[0]
    lent = Consumer(images, stream=1)

    def child():
        with pytest.raises(BufferError, match=f"process {os.getppid()} made this batch"):
            images.__dlpack__(stream=1)
        lent.delete()

    assert in_fork(child) == 0
    lent.delete()


def test_a_sample_transform_gets_tensors(device, pictures):
    def make():
        return on(device, pictures, samples=False, sample_transform=lambda image: image * 2)

    if device.startswith("cuda") and not HAS_TORCH:
        with pytest.raises(stokehold.OptionError, match="sample_transform: .* install torch"):
            make()
        return
    for (images, _), (expected, _) in zip(make(), on_cpu(pictures, samples=False)):
        assert np.array_equal(plain(images), 2 * plain(expected))


def test_headers_are_found_where_a_package_has_them(tmp_path, monkeypatch):
    from stokehold import _tensors

    if os.path.isdir("/usr/local/cuda"):
        pytest.skip("a CUDA toolkit is found before the package in this environment")
    (tmp_path / "cuda_runtime").mkdir()
    # Whichever packages of NVIDIA's this environment has.
    nvidia = types.ModuleType("nvidia")
    nvidia.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, "nvidia", nvidia)
    asked = []
    monkeypatch.setattr(_tensors.ctypes, "CDLL", asked.append)
    monkeypatch.setenv("CUDA_PATH", "mine")
    _tensors.find_nvrtc()
    assert os.environ["CUDA_PATH"] == "mine"
    monkeypatch.delenv("CUDA_PATH")
    _tensors.find_nvrtc()
    assert os.environ["CUDA_PATH"] == str(tmp_path / "cuda_runtime")
    assert asked == ["libnvrtc.so"] * 2

"""Drives the trials by their protocol, on images that are made here.

    python -m unittest               # trials whose libraries this Python has not are skipped
"""

from __future__ import annotations

import json
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import zlib
from pathlib import Path
from typing import Any

try:
    import numpy as np
    from PIL import Image
except ModuleNotFoundError as error:
    raise unittest.SkipTest(f"there is no module {error.name}") from None

from emulated import Emulated
from needs import TRIALS

HERE = Path(__file__).parent
IMAGES, CLASSES, BATCH, SIZE, EPOCHS = 50, 7, 8, 64, 2
PATIENCE = 180  # seconds; FFCV compiles
TORCH = {"device": "cpu", "amp": False, "lr": 0.001, "momentum": 0.5}


class Trial:
    """A running trial."""

    def __init__(self, line: str):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [sys.executable, HERE / "trial.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
            text=True, start_new_session=True,
        )  # fmt: skip
        self.answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()
        self.say(line)

    def listen(self) -> None:
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put("")

    def say(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """The next answer; {} if the program has ended."""
        return json.loads(self.answers.get(timeout=PATIENCE) or "{}")

    def round(self, steps: int) -> dict[str, Any]:
        self.say(json.dumps({"steps": steps}))
        answer = self.answer()
        if "round" not in answer:
            raise AssertionError(f"{answer}\n{self.said()}")
        return answer["round"]

    def group(self) -> list[int]:
        """The processes of its group that still run."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _parent, group = stat.read_text().rpartition(")")[2].split()[:3]
            except OSError:
                continue
            if int(group) == self.process.pid and state != "Z":
                found.append(int(stat.parent.name))
        return found

    def said(self) -> str:
        """What it wrote to standard error."""
        self.errors.seek(0)
        return self.errors.read()

    def status(self) -> int:
        """Its exit status, with nobody of its group left a moment later."""
        status = self.process.wait(30)
        until = time.monotonic() + 5
        while self.group() and time.monotonic() < until:
            time.sleep(0.02)
        if self.group():
            raise AssertionError(f"processes are left: {self.group()}")
        return status

    def end(self) -> int:
        self.process.stdin.close()
        return self.status()

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for file in (self.process.stdout, self.errors):
            file.close()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass


class Trials(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory(prefix="stokehold-trials-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        draw = random.Random(3)
        cls.files, cls.labels = [], []
        for number in range(IMAGES):
            path = cls.folder / f"{number}.jpg"
            width, height = draw.randint(40, 200), draw.randint(40, 200)
            few = np.random.default_rng(number).integers(0, 256, (4, 4, 3), np.uint8)
            image = Image.fromarray(few).resize((width, height), Image.Resampling.BICUBIC)
            image.save(path, quality=90, subsampling=number % 3)
            cls.files.append(str(path))
            cls.labels.append(draw.randrange(CLASSES))
        cls.order = []
        for _ in range(EPOCHS):
            cls.order += draw.sample(range(IMAGES), IMAGES // BATCH * BATCH)

    def spec(self, trial: str, load: int = 0, trainer: Any = None, files: list[str] | None = None, **other: Any) -> str:
        """The first line for a trial, as JSON."""
        own = Path(tempfile.mkdtemp(dir=self.folder))
        samples = {"files": files or self.files, "labels": self.labels, "classes": CLASSES}
        (own / "samples.json").write_text(json.dumps(samples))
        np.array(self.order, "<u4").tofile(own / "order.u32")
        return json.dumps(
            {"trial": trial, "samples": str(own / "samples.json"), "order": str(own / "order.u32"), "load": load,
             "image_size": SIZE, "batch_size": BATCH, "workers": 2, "seed": 5, "model": "resnet18", "scratch": str(own),
             "trainer": trainer or {"emulated": {"images_per_second": 2000}}} | other
        )  # fmt: skip

    def start(self, *args: Any, **options: Any) -> Trial:
        """A trial that is ready; skips the test if its library is not installed."""
        trial = Trial(self.spec(*args, **options))
        self.addCleanup(trial.__exit__)
        answer = trial.answer()
        if "install" in answer.get("cannot", {}):
            self.skipTest(answer["cannot"]["why"])
        self.assertIn("ready", answer, trial.said())
        self.assertTrue(answer["ready"]["versions"])
        return trial

    def expected(self, first: int, steps: int) -> int:
        """The CRC of the labels of `steps` batches from number `first` on."""
        taken = [self.order[i % len(self.order)] for i in range(first * BATCH, (first + steps) * BATCH)]
        return zlib.crc32(np.array([self.labels[i] for i in taken], "<u4").tobytes())

    def test_every_trial_takes_the_same_samples(self) -> None:
        """More steps than the order has, stopped and continued in between; at the end nothing is left."""
        for name in TRIALS:
            for load in (0, 2):
                with self.subTest(trial=name, load=load):
                    with Trial(self.spec(name, load)) as trial:
                        answer = trial.answer()
                        if "cannot" in answer:
                            self.assertTrue(answer["cannot"]["why"])
                            self.assertEqual(trial.end(), 0)
                            print(f"{name} at load {load} cannot: {answer['cannot']['why']}", file=sys.stderr)
                            continue
                        self.assertIn("ready", answer, trial.said())
                        self.assertEqual(answer["ready"]["device"], "emulated")
                        first = 0
                        for steps in (5, 1, 20):
                            said = trial.round(steps)
                            self.assertEqual(said["labels"], self.expected(first, steps))
                            self.assertEqual((said["steps"], said["images"]), (steps, steps * BATCH))
                            self.assertAlmostEqual(said["busy"], steps * BATCH / 2000)
                            self.assertLess(said["copying"], said["seconds"])
                            self.assertLess(said["waited"], said["seconds"])
                            self.assertNotIn("loss", said)
                            self.assertEqual(len(said["times"]), steps)
                            self.assertAlmostEqual(sum(without for without, _ in said["times"]), said["waited"], 3)
                            self.assertLessEqual(sum(map(sum, said["times"])), said["seconds"] + 1e-3)
                            first += steps
                            os.killpg(trial.process.pid, signal.SIGSTOP)
                            time.sleep(0.1)
                            os.killpg(trial.process.pid, signal.SIGCONT)
                        self.assertEqual(trial.end(), 0)

    def test_a_fast_loader_has_the_pace_of_the_accelerator(self) -> None:
        for name in ("stokehold", "albumentations", "torchvision"):
            with self.subTest(trial=name):
                trial = self.start(name, trainer={"emulated": {"images_per_second": 100}})
                trial.round(5)
                apart = []
                # What it waited is added to the steps; a machine that is busy with other things makes it wait, and holds a round up.
                while len(apart) < 3 and min(apart, default=1) >= 0.005:
                    said = trial.round(25)
                    apart.append(abs(said["seconds"] - said["waited"] - said["busy"]) / said["busy"])
                self.assertLess(min(apart), 0.005)
                self.assertEqual(trial.end(), 0)

    def test_torch_trains_what_the_loader_loads(self) -> None:
        for name in ("torchvision", "dali", "stokehold", "spdl", "ffcv", "ffcv-raw"):
            with self.subTest(trial=name):
                trial = self.start(name, trainer={"torch": TORCH})
                said = trial.round(2)
                self.assertGreater(said["loss"], 0)
                self.assertGreater(said["busy"], 0)
                self.assertEqual(said["labels"], self.expected(0, 2))
                self.assertEqual(trial.end(), 0)

    def test_torch_with_amp(self) -> None:
        trial = Trial(self.spec("torchvision", trainer={"torch": TORCH | {"amp": True}}))
        self.addCleanup(trial.__exit__)
        answer = trial.answer()
        if "cannot" in answer:
            self.skipTest(answer["cannot"]["why"])
        self.assertEqual(answer["ready"]["device"], "cpu, AMP bfloat16", trial.said())
        self.assertGreater(trial.round(1)["loss"], 0)

    def test_what_cannot_be_done_is_said(self) -> None:
        if os.path.exists("/proc/driver/nvidia"):
            self.skipTest("there is a GPU")
        for spec, why in (
            (self.spec("ffcv", load=1), "rotation|FFCV is not installed"),
            (self.spec("dali-gpu"), "CUDA driver|DALI is not installed"),
            (self.spec("stokehold-gpu"), "on a CUDA device|Python package is not installed"),
            (self.spec("torchvision", trainer={"torch": TORCH | {"device": "cuda"}}), "no GPU|no CUDA|not installed"),
            (self.spec("torchvision", trainer={"torch": TORCH}, model="resnet9"), "resnet9|not installed"),
        ):
            with self.subTest(why=why), Trial(spec) as trial:
                self.assertRegex(trial.answer()["cannot"]["why"], why)
                self.assertEqual(trial.end(), 0)

    def test_a_bad_image_ends_the_trial_with_its_name(self) -> None:
        damaged = self.folder / "damaged.jpg"
        damaged.write_bytes(b"no picture" * 100)
        missing = self.folder / "missing.jpg"
        for name in TRIALS:
            for bad in (damaged, missing):
                with self.subTest(trial=name, bad=bad.name):
                    files = list(self.files)
                    files[self.order[0]] = str(bad)
                    with Trial(self.spec(name, files=files)) as trial:
                        answer = trial.answer()
                        if "cannot" in answer:
                            continue
                        self.assertEqual(answer, {})
                        self.assertEqual(trial.status(), 2, trial.said())
                        # DALI names no file that it has read and cannot decode.
                        self.assertIn("DALI" if name == "dali" else str(bad), trial.said())
                        self.assertNotIn("Traceback", trial.said())

    def test_bad_requests_end_it_with_a_message(self) -> None:
        good = json.loads(self.spec("torchvision"))
        for line, message in (
            ("{", "no JSON"),
            ("[1]", "must be a JSON object"),
            (json.dumps(good | {"trial": "keras"}), "there is no trial called 'keras'"),
            (json.dumps(good | {"workers": 0}), "workers must be a whole number from 1 on"),
            (json.dumps(good | {"colour": 1}), "unknown field: colour"),
            (json.dumps({name: good[name] for name in good if name != "seed"}), "has no seed"),
            (json.dumps(good | {"samples": "/nowhere"}), "samples: .*No such file"),
            (json.dumps(good | {"order": good["samples"]}), "order: .* whole number of batches"),
            (json.dumps(good | {"trainer": {"emulated": {}}}), "emulated must be|torchvision is not installed"),
            (json.dumps(good | {"trainer": {"horse": {}}}), "trainer must be"),
        ):
            with self.subTest(message=message), Trial(line) as trial:
                if "cannot" in trial.answer():
                    continue
                self.assertEqual(trial.status(), 2)
                self.assertRegex(trial.said(), message)
                self.assertNotIn("Traceback", trial.said())

    def test_a_bad_number_of_steps_ends_it(self) -> None:
        trial = self.start("torchvision")
        trial.say('{"steps": 0}')
        self.assertEqual(trial.answer(), {})
        self.assertEqual(trial.status(), 2)
        self.assertIn("from 1 on", trial.said())

    def test_it_ends_in_the_middle_of_a_round(self) -> None:
        """By the end of its input, by SIGTERM, and by SIGKILL, which it cannot see: its workers end too."""
        for name in ("torchvision", "albumentations", "stokehold", "dali", "spdl"):
            for how in ("end of input", signal.SIGTERM, signal.SIGKILL):
                with self.subTest(trial=name, how=how):
                    trial = self.start(name, trainer={"emulated": {"images_per_second": 50}})
                    trial.say('{"steps": 1000}')
                    time.sleep(0.3)
                    if how == "end of input":
                        self.assertEqual(trial.end(), 0)
                    else:
                        trial.process.send_signal(how)
                        self.assertEqual(trial.status(), -how)

    def test_it_ends_with_its_parent(self) -> None:
        if sys.platform != "linux":
            self.skipTest("only Linux tells a process of its parent's end")
        # The input stays open: the trial has to notice by itself.
        into, write = os.pipe()
        command = [sys.executable, str(HERE / "trial.py")]
        program = f"import subprocess, time; subprocess.Popen({command!r}); time.sleep(99)"
        parent = subprocess.Popen([sys.executable, "-c", program], stdin=into, stdout=subprocess.PIPE, text=True)
        try:
            os.write(write, (self.spec("torchvision") + "\n").encode())
            self.assertTrue(parent.stdout.readline())
            parent.kill()
            # Everybody who could write has ended.
            self.assertEqual(parent.stdout.read(), "")
        finally:
            parent.kill()
            parent.wait()
            parent.stdout.close()
            os.close(into)
            os.close(write)


class Pace(unittest.TestCase):
    def accelerator(self, rate: float) -> Emulated:
        class Shape:
            shape, batch_size = (8, 3, 4, 4), 8

        return Emulated(Shape, rate)

    def test_it_is_exact_over_many_steps(self) -> None:
        """200 steps of 4 ms and waits of 1 ms between some of them take their sum, although no sleep is exact."""
        emulated, batch, labels = self.accelerator(2000), np.zeros((8, 3, 4, 4), np.float32), np.zeros(8, np.uint32)
        begun, without_batch = time.monotonic(), 0.0
        for step in range(200):
            before = time.monotonic()
            if step % 10 == 3:
                time.sleep(0.001)
            without_batch += time.monotonic() - before
            emulated.step(batch, labels)
        took, expected = time.monotonic() - begun, 0.8 + without_batch
        self.assertGreater(took, expected - 0.001)
        self.assertLess(took, expected * 1.05)  # the last sleep may be too long

    def test_a_long_stall_is_not_made_up_for(self) -> None:
        emulated, batch, labels = self.accelerator(800), np.zeros((8, 3, 4, 4), np.float32), np.zeros(8, np.uint32)
        emulated.step(batch, labels)
        now = time.monotonic()
        emulated.last = (now - 60, now)
        begun = time.monotonic()
        for _ in range(5):
            emulated.step(batch, labels)
        self.assertGreater(time.monotonic() - begun, 0.04)


if __name__ == "__main__":
    unittest.main()

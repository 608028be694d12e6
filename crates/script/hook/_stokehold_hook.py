"""What a PyTorch program does, seen and changed from outside.

Nothing of the program is changed until it imports torch, or Pillow and other decoders where images are asked for. Then these are wrapped:

* `DataLoader.__init__`, where the settings ask for other arguments; `DataLoader.__iter__`, to time the start of workers, and to
  hand the loader's images to Stokehold where that is asked for;
* `__next__` of its iterators: the time in it is a wait, the time until the next call is the program's;
* `_DatasetKind.create_fetcher`, whose fetchers make the batches, in workers or in the process itself;
* the end of every optimizer's step, by torch's own global hook;
* `Tensor.to` and `Tensor.cuda`, once CUDA is in use.

Spans are lines for the socket STOKEHOLD_TIMELINE (docs/concepts/timeline.md). Every process that imports torch also keeps a file of
its counters in the folder that STOKEHOLD_HOOK names, at most a second behind.

What goes wrong in here ends the hook's part, never the program.
"""

import atexit
import functools
import gc
import importlib.abc
import importlib.machinery
import itertools
import json
import os
import socket
import sys
import threading
import time
import weakref

from _stokehold_system import age, fetch_counts, is_of_a_handler, library_threads, own_lacked, own_reads, python_threads, watch_threads

#: The settings: a JSON object of `folder`, `workers`, `persistent`, `pin`, `prefetch`, `swap`, `images`, `told`, `convert`,
#: `compare_images`, `gradients`, `steps` and `seconds`, each if it is wanted.
SETTINGS = "STOKEHOLD_HOOK"
#: Of the loader whose workers are started: its number, its process's rank, the number of ranks, its process's number, and how many
#: batches a worker fetches with fast images.
LOADER = "STOKEHOLD_HOOK_LOADER"
#: The name of an empty file next to the counters: the hook has started in some process.
STARTED = "started"
#: Bytes of lines that wait for the socket: what comes beyond them is dropped and counted.
ROOM = 1 << 20
#: Seconds between two writings.
PERIOD = 1.0
#: Intervals without an optimizer's step that are kept until it is known whether they train: batches of one accumulated step.
UNDECIDED = 1024
#: Optimizer steps between two norms of the gradients.
GRADIENTS = 50
#: Steps after which several ranks end, where a time is given.
RANKS_STEPS = 50
#: CUDA events that wait to be read.
EVENTS = 1024
#: Loaders that are counted each by itself. Of more, one of the same kind is counted with another that is gone.
LOADERS = 16
#: Loaders that are counted at all.
MOST_LOADERS = 256
#: The share of the program's time that writing the counters may take.
WRITING = 0.01
#: The modules that make fast images, and what they serve.
FAST_IMAGES = ("stokehold.pillow", "stokehold.decoders")
SERVED = ("PIL.Image", "cv2", "torchvision.io", "simplejpeg", "turbojpeg")
FAST_BATCHES = 8  # with fast images, of all workers; each fetches one more, which warms it up
FAST_SHARE = 0.04  # of an epoch's batches, or three batches
FAST_WORKERS = 2
FAST_IMAGES_LEAST = 32  # that are enough to tell


#: The hook of this process.
hook = None


def guarded(function):
    """An error of the hook switches the hook off."""

    @functools.wraps(function)
    def guarded_function(*args, **kwargs):
        if hook is None or hook.off:
            return None
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if is_of_a_handler(error):
                raise
            hook.off = True
            hook.problem(f"the hook ended: {function.__name__}: {error!r}")
            try:
                hook.write()
            except Exception:
                pass
            return None

    return guarded_function


class Hook:
    """The state of this process."""

    def __init__(self, settings):
        self.settings = settings
        self.off = False
        #: What the command that asked for changes was told of them.
        self.told = set()
        #: The modules of fast images, imported here.
        self.fast = None
        self.begin()

    def begin(self):
        """The state of a new process; also of one that was forked."""
        self.pid = os.getpid()
        self.socket = None
        self.gone = False
        self.lines = bytearray()
        self.dropped = 0
        self.written = time.time()
        #: When the counters may be written again, and by whom.
        self.next_write = self.written + PERIOD
        self.writing = threading.Lock()
        self.has_failed = False
        self.problems = []
        self.loaders = []
        self.fetching = None
        self.optimizer_steps = 0
        self.optimizer_end = 0.0
        #: The thread that made the last step.
        self.stepping = None
        #: A norm of gradients that a device still computes.
        self.norm = None
        self.train_steps = 0
        #: The iteration whose batch the program has.
        self.open = None
        self.device = None
        #: Why there are no fast images; None where they are, and where no one has asked for them.
        self.no_fast = None
        #: The process whose loader this one works for, if it is a worker.
        self.owner = None
        rank, size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
        known = rank.isdigit() and size.isdigit()
        self.place(*((int(rank), int(size)) if known else (0, 1)))
        self.torch = sys.modules.get("torch")
        #: Whether the first iteration has begun.
        self.iterated = False
        #: How old this process was when it got the hook.
        self.age = 0.0
        #: When that was.
        self.born = time.time()

    def place(self, rank, world):
        """Which of the ranks this is. Spans of other ranks are tracks of their own, beside those of rank 0 that figures are made of."""
        self.rank, self.world = (rank, world) if world > 1 else (0, 1)
        self.prefix = f"rank{self.rank}/".encode() if self.rank else b""

    def span(self, name, start, end, rest=b""):
        line = b"%s%s %.6f %.6f%s\n" % (self.prefix, name, start, end if end > start else start, rest)
        if len(self.lines) + len(line) > ROOM:
            self.dropped += 1
            return
        self.lines += line

    def metric(self, name, value, step):
        line = f"metric {name} {value} step={step}\n".encode()
        if len(self.lines) + len(line) > ROOM:
            self.dropped += 1
        else:
            self.lines += line

    def flush(self, now, last=False):
        """Sends lines and writes the counters, if it is time."""
        due = last or now >= self.next_write
        if not due and now - self.written < PERIOD and len(self.lines) < 16384:
            return
        self.send(last)
        if due and self.writing.acquire(timeout=1.0 if last else 0.0):
            try:
                self.next_write = now + PERIOD
                begin = time.thread_time()
                self.write()
                self.next_write = now + max(PERIOD, (time.thread_time() - begin) / WRITING)
            finally:
                self.writing.release()
        if due or now - self.written >= PERIOD:
            self.written = now

    def send(self, last=False):
        if not self.lines or self.gone:
            self.lines.clear()
            return
        try:
            if self.socket is None:
                address = os.environ.get("STOKEHOLD_TIMELINE")
                if not address:
                    self.gone = True
                    return
                self.socket = socket.socket(socket.AF_UNIX)
                self.socket.settimeout(1.0)
                self.socket.connect(address)
            # Only at the end is there time to wait.
            self.socket.settimeout(1.0 if last else 0.0)
            while self.lines:
                # A copy: other threads may add lines meanwhile.
                del self.lines[: self.socket.send(bytes(self.lines[:65536]))]
        except (BlockingIOError, socket.timeout):
            pass
        except OSError as error:
            self.gone = True
            self.problem(f"spans are not sent: {error}")

    def problem(self, text):
        if len(self.problems) < 20 and text not in self.problems:
            self.problems.append(text)

    def write(self):
        """The counters, written aside and renamed."""
        folder = self.settings.get("folder")
        if not folder:
            return
        if self.dropped:
            self.problem(f"{self.dropped} spans were dropped: they came faster than they were taken")
        name = str(self.pid)
        if self.fetching is not None:
            # Those of the last epoch's workers stand for all: a loader has new ones in every epoch.
            name = f"{self.owner}-loader{self.fetching.loader}-worker{self.fetching.worker}"
            if self.fetching.fast is not None:
                # Only workers of the first epoch have tried fast images.
                name += "-first"
        path = os.path.join(folder, f"{name}.json")
        aside = os.path.join(folder, f".{self.pid}.new")
        try:
            with open(aside, "w", encoding="utf-8") as file:
                # Not dump, whose encoder is Python's.
                file.write(json.dumps(self.facts()))
            os.replace(aside, path)
        except (OSError, RuntimeError, TypeError, ValueError) as error:
            # A disk may have room again, and a thread end what it changes.
            if not self.has_failed:
                sys.stderr.write(f"stokehold: what the script does is not kept at the moment: {error}\n")
            self.has_failed = True

    def facts(self):
        torch = self.torch
        return {
            "pid": self.pid,
            "torch": str(getattr(torch, "__version__", "")),
            "rank": self.rank,
            "world": self.world,
            "local_world": number_or(os.environ.get("LOCAL_WORLD_SIZE"), self.world),
            "device": "cuda" if self.device is not None else "cpu",
            "train_steps": self.train_steps,
            "device_busy_seconds": self.device.busy if self.device is not None and self.device.counted else None,
            "device_idle_seconds": self.device.idle if self.device is not None and self.device.counted else None,
            "unpinned_transfers": 0 if self.device is None else self.device.unpinned,
            "fast_images_refused": self.no_fast,
            "float_transfers": 0 if self.device is None else self.device.floats,
            "loaders": [loader.facts() for loader in self.loaders],
            "fetching": None if self.fetching is None else self.fetching.facts(),
            "problems": self.problems,
        }

    @guarded
    def finish(self):
        """The last writing of this process."""
        if os.getpid() != self.pid or self.torch is None:
            return
        for loader in self.loaders:
            for iteration in list(loader.going):
                iteration.leave(time.time())
        self.flush(time.time(), last=True)


class LoaderFacts:
    """A DataLoader: what it is, and where its time went. It does not keep the loader alive, nor what makes batches in its place.

    A script may make loaders without end: then these are the facts of several of one kind, of which one is alive."""

    def __init__(self, number, loader, described):
        self.number = number
        self.pid = os.getpid()
        self.described = described
        self.loader = weakref.ref(loader)
        #: Iterations that have not ended.
        self.going = []
        self.train = Times()
        self.evaluate = Times()
        self.swapped = False
        self.swap_refused = None
        self.pipeline = None
        #: Loaders that were counted here.
        self.loaders = 1
        #: The sums of the iteration that has ended last, until the program knows of it.
        self.ended = None
        #: Of a loader without workers.
        self.fetching = None
        #: Whether another thread than the one that trains takes the batches, so that no wait of training is seen.
        self.is_elsewhere = False

    def __reduce__(self):
        # A copy of a loader is another one.
        return type(None), ()

    def is_of_kind(self, described):
        """Whether another loader is like this one but for its data."""
        return all(self.described[name] == described[name] for name in described if name not in ("batches", "root"))

    def take(self, loader, described):
        """Counts another loader from now on."""
        for iteration in list(self.going):
            iteration.leave(time.time())
        self.loader = weakref.ref(loader)
        self.loaders += 1
        for name, value in described.items():
            if self.described[name] != value:
                self.described[name] = None

    def facts(self):
        return {
            "number": self.number,
            "loaders": self.loaders,
            **self.described,
            "swapped": self.swapped,
            "swap_refused": self.swap_refused,
            "pipeline": self.pipeline,
            "elsewhere": self.is_elsewhere,
            "fetching": None if self.fetching is None else self.fetching.facts(),
            "train": self.train.facts(),
            "evaluate": self.evaluate.facts(),
        }


def described(loader):
    """What does not change while a loader runs."""
    dataset = member(loader, "dataset")
    kind = type(dataset)
    below = dataset
    # Subset and the like.
    for _ in range(8):
        if member(below, "root") is not None or member(below, "dataset") is None:
            break
        below = below.dataset
    batch_size = member(loader, "batch_size")
    return {
        "num_workers": int(getattr(loader, "num_workers", 0)),
        "batch_size": number_or(batch_size or getattr(getattr(loader, "batch_sampler", None), "batch_size", None), None),
        "pin_memory": bool(getattr(loader, "pin_memory", False)),
        "persistent_workers": bool(getattr(loader, "persistent_workers", False)),
        "prefetch_factor": number_or(getattr(loader, "prefetch_factor", None), None),
        "dataset": f"{kind.__module__}.{kind.__qualname__}",
        "iterable": is_iterable(dataset),
        "batches": batches_of(loader),
        "root": path_or_none(member(below, "root")),
    }


def is_iterable(dataset):
    """Whether samples come one after the other, and have no numbers."""
    data = sys.modules.get("torch.utils.data")
    kind = getattr(data, "IterableDataset", None)
    return kind is not None and isinstance(dataset, kind)


def batches_of(loader):
    """Batches of an epoch; None where only the program's own code could say. What torch's samplers ask the data set, they ask it
    for every epoch. An iterable data set is asked by nobody: torch holds it to its answer."""
    sampler, batches = member(loader, "sampler"), member(loader, "batch_sampler")
    known = (sampler,) if batches is None else (sampler, batches)
    if is_iterable(member(loader, "dataset")) or not all(type(one).__module__.startswith("torch.utils.data.") for one in known):
        return None
    try:
        return len(known[-1])
    except Exception:
        return None


def number_or(value, otherwise):
    """A whole number, also of a text."""
    try:
        return int(value)
    except (OverflowError, TypeError, ValueError):
        return otherwise


def path_or_none(value):
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else ""
    return text[:4096].encode(errors="replace").decode() if isinstance(text, str) and text else None


def member(thing, name):
    """A member of the program's objects, which may be anything, or fail."""
    try:
        return getattr(thing, name, None)
    except Exception:
        return None


def spent():
    """CPU time of this process, and the time for which the calling thread could run and had no core."""
    return time.process_time(), own_lacked()


class Times:
    """Sums over the batches of a loader."""

    def __init__(self):
        self.iterations = self.finished = self.batches = self.images = 0
        self.wait_seconds = self.first_wait_seconds = self.start_seconds = 0.0
        #: Of the program, with the batch: until the optimizer's step ends, and after it until it asks for the next.
        self.step_seconds = self.between_seconds = 0.0
        #: In that time: CPU time of all threads of the process, time for which the program's own could run and had no core, and that
        #: of copies to a device.
        self.cpu_seconds = self.delay_seconds = self.transfer_seconds = 0.0
        #: Of iterations that came to their end.
        self.finished_images = 0
        #: From the demand that finds an iteration's end until the program knows of it: workers are ended meanwhile.
        self.end_seconds = 0.0

    def facts(self):
        return dict(vars(self))


class Iteration:
    """One pass over a loader. Intervals, each a wait and the program's time with the batch, are kept until it is known whether
    they train: an optimizer's step says so, for those before it too."""

    def __init__(self, facts, began):
        self.facts = facts
        self.began = began
        self.started = began
        self.batches = 0
        self.trains = None
        self.intervals = []
        self.given = None
        self.interrupted = None
        #: Steps of optimizers up to the moment from which they are of another pass.
        self.steps_before = None
        #: The thread that took the last batch, and the steps of optimizers before all of them.
        self.thread, self.steps_began = None, hook.optimizer_steps
        #: Whether gradients were wanted when the last batch came.
        self.graded = True
        self.expected = facts.described["batches"]
        self.images = 0
        self.first = True

    def asked(self, now, spent):
        """The program asks for a batch: what it did with the last one is over."""
        open_one = hook.open
        if open_one is not None and open_one is not self and open_one.interrupted is None:
            # Another loader's batches have their own time, as validation in the midst of an epoch has.
            open_one.interrupted = (now, spent)
            # The program left the other pass, which takes no further steps; zipped loaders share theirs.
            if self.batches == 0 or not open_one.graded:
                open_one.steps_before = hook.optimizer_steps
        self.close(now, spent)
        if self.expected and self.batches == self.expected:
            # Either the end, or an iterator that begins again by itself.
            self.end(now)
            self.__init__(self.facts, now)
            self.facts.going.append(self)

    def close(self, now, spent):
        if self.given is None:
            return
        (asked, at, before, images, steps), self.given = self.given, None
        end, after = self.interrupted or (now, spent)
        self.interrupted = None
        so_far = hook.optimizer_steps if self.steps_before is None else self.steps_before
        self.steps_before = None
        stepped = so_far > steps
        step_end = min(hook.optimizer_end, end) if stepped and hook.optimizer_end > at else end
        device = hook.device
        events = None if device is None else device.closed(stepped)
        copied = 0.0 if device is None else device.taken()
        self.intervals.append((asked, at, step_end, end, after[0] - before[0], after[1] - before[1], images, events, copied))
        if stepped:
            self.decide(True)
        elif self.trains is False or len(self.intervals) >= UNDECIDED:
            self.decide(bool(self.trains))

    def got(self, asked, now, spent, images):
        self.batches += 1
        self.thread = threading.get_ident()
        self.given = (asked, now, spent, images, hook.optimizer_steps)
        self.graded = hook.torch is None or hook.torch.is_grad_enabled()
        hook.open = self
        if hook.device is None and hook.torch is not None and cuda_is_used(hook.torch):
            hook.device = Device(hook.torch)
        if hook.device is not None:
            hook.device.given()
        hook.flush(now)

    def decide(self, trains):
        """Counts the intervals so far."""
        self.trains = trains
        times = self.facts.train if trains else self.facts.evaluate
        if trains and hook.stepping not in (None, self.thread):
            self.facts.is_elsewhere = True
        marked = marks_itself() or self.facts.is_elsewhere
        for asked, at, step_end, end, cpu, lacked, images, events, copied in self.intervals:
            times.batches += 1
            times.images += images
            self.images += images
            times.wait_seconds += at - asked
            if self.first:
                self.first = False
                times.iterations += 1
                times.first_wait_seconds += at - asked
                times.start_seconds += self.started - self.began
                hook.span(b"DataLoaderIterInitialize", self.began, self.started)
            times.step_seconds += step_end - at
            times.between_seconds += end - step_end
            times.cpu_seconds += cpu
            # Another thread may have asked for the next batch.
            times.delay_seconds += max(0.0, lacked)
            times.transfer_seconds += copied
            if hook.device is not None:
                hook.device.count(events if trains else None)
            if trains:
                hook.train_steps += 1
                if not marked:
                    number = b" step=%d" % hook.train_steps
                    hook.span(b"wait", asked, at, number)
                    hook.span(b"step", at, step_end, number)
            else:
                hook.span(b"validation/wait", asked, at)
                hook.span(b"Step:ModeKeys.EVAL", at, end)
        self.intervals.clear()
        if trains and is_enough(times):
            hook.finish()
            sys.stdout.flush()
            sys.stderr.flush()
            # The program's own end, which may take long and write much, is not wanted.
            os._exit(0)

    def decide_rest(self, now):
        if self.given is not None:
            self.close(now, spent())
        if self.intervals:
            # Steps of another thread are made while this one waits for the next batch.
            others = hook.stepping not in (None, self.thread) and hook.optimizer_steps > self.steps_began
            self.decide(bool(self.trains) or others)

    def leave(self, now):
        """The program asks for no more: it has all batches, or has left the loop before."""
        if self.given is not None and self.interrupted is None:
            # What it does now is no part of the last batch's time.
            _, at, before, _, steps = self.given
            last = hook.optimizer_end if hook.optimizer_steps > steps else at
            self.interrupted = (min(max(at, last), now), before)
        if self.expected and self.batches >= self.expected:
            self.end(now)
        else:
            self.decide_rest(now)
            if self in self.facts.going:
                self.facts.going.remove(self)

    def end(self, now):
        self.decide_rest(now)
        if self in self.facts.going:
            self.facts.going.remove(self)
        if hook.open is self:
            hook.open = None
        if not self.batches:
            return
        times = self.facts.train if self.trains else self.facts.evaluate
        times.finished += 1
        self.facts.ended = times
        times.finished_images += self.images
        number = b" step=%d" % times.finished
        hook.span(b"epoch" if self.trains else b"validation", self.began, now, number if self.trains else b"")
        hook.flush(now)


def is_enough(times):
    """Whether the script was to be ended after so much training."""
    steps, seconds = hook.settings.get("steps"), hook.settings.get("seconds")
    if steps is not None and hook.train_steps >= steps:
        return True
    if seconds is None:
        return False
    if hook.world > 1:
        # All ranks at the same step, for they wait for each other.
        return hook.train_steps >= RANKS_STEPS
    spent = times.wait_seconds + times.start_seconds + times.step_seconds + times.between_seconds
    return hook.train_steps >= 10 and spent >= seconds


def marks_itself():
    """Whether the program sends its waits and steps by the Python package's `wrap` and `step`."""
    own = sys.modules.get("stokehold._profile")
    return own is not None and getattr(getattr(own, "_state", None), "recording", None) is not None


class Fetching:
    """What makes batches in this process."""

    def __init__(self, loader, worker, start):
        self.loader = loader
        self.worker = worker
        self.start_seconds = start
        #: What a worker's process had computed by then.
        self.start_cpu_seconds = 0.0 if worker is None else time.process_time()
        self.batches = self.images = 0
        self.wait_seconds = self.doubt_seconds = self.reading_seconds = self.cpu_seconds = 0.0
        #: The first fetch, which also imports and opens.
        self.first_seconds = self.first_cpu_seconds = 0.0
        #: Fetches after the first: count, and the sums of t and t^2 (seconds per image).
        self.later, self.later_seconds, self.later_squares = 0, 0.0, 0.0
        #: The same fetches without those of images that are not counted: images, and the CPU time of the fetching thread.
        self.plain_images, self.plain_cpu_seconds = 0, 0.0
        #: What the garbage collector had taken when the batch was begun.
        self.collected = 0.0
        #: Fetches with fast images, which nothing else here counts.
        self.fast = None
        #: Bytes of the tensors in the first batch.
        self.batch_bytes = 0
        #: None where the system does not count them.
        self.read_bytes = 0
        self.process_began = None
        #: Whether the calling thread fetches a batch.
        self.busy = threading.local()

    def facts(self):
        threads, computed = (0, 0.0) if self.worker is None else library_threads()
        process = 0.0 if self.process_began is None else time.process_time() - self.process_began
        if self.fast is not None:
            process -= self.fast.process_seconds
        return {
            "loader": self.loader,
            "worker": self.worker,
            "owner": hook.owner,
            "start_seconds": self.start_seconds,
            "start_cpu_seconds": self.start_cpu_seconds,
            "first_seconds": self.first_seconds,
            "first_cpu_seconds": self.first_cpu_seconds,
            "later": self.later,
            "later_seconds": self.later_seconds,
            "later_squares": self.later_squares,
            "batch_bytes": self.batch_bytes,
            "plain_images": self.plain_images,
            "plain_cpu_seconds": self.plain_cpu_seconds,
            "opens_jpegs": "PIL.JpegImagePlugin" in sys.modules,
            **({} if self.fast is None else {"fast_images": self.fast.images, "fast_opened": self.fast.opened, "fast_cpu_seconds": self.fast.cpu_seconds}),
            "batches": self.batches,
            "images": self.images,
            "wait_seconds": self.wait_seconds,
            "doubt_seconds": self.doubt_seconds,
            "reading_seconds": self.reading_seconds,
            "read_bytes": self.read_bytes,
            "cpu_seconds": self.cpu_seconds,
            "process_cpu_seconds": process,
            "library_threads": threads,
            "library_cpu_seconds": computed,
        }


class Fast:
    """A few batches of a worker, fetched with fast images one after the other: what they would save is known by that. The pixels are the
    same to the bit. The first one of these warms caches up, and is not counted."""

    def __init__(self, modules, batches):
        self.modules = modules
        #: Batches that are left, with the first one.
        self.left = batches + 1
        self.batches = self.images = 0
        #: JPEGs that were opened or decoded in them.
        self.opened = 0
        #: CPU time of the fetching thread, and of the whole process with the first batch.
        self.cpu_seconds = self.process_seconds = 0.0
        self.began = 0.0

    def begin(self, batches):
        """Whether the next batch is one of these. The first one of a process imports and is neither."""
        if self.left <= 0 or not batches:
            return False
        if any(name in sys.modules for name in FAST_IMAGES):
            # The script has them itself.
            self.left = 0
            return False
        self.began = time.process_time()
        try:
            installed = [module.install(0, quiet=True) for module in self.modules]
        except Exception:
            self.end()
            raise
        if not any(installed):
            self.left = 0
            return False
        self.left -= 1
        return True

    def end(self):
        """Gives everything back, whatever came of the batch."""
        for module in self.modules:
            self.opened += module.counts().get("asked", 0)
            module.uninstall()
        self.process_seconds += time.process_time() - self.began

    def count(self, images, cpu):
        """A batch that was made."""
        self.batches += 1
        if self.batches > 1:
            self.images += images
            self.cpu_seconds += cpu


class Collected:
    """CPU time of Python's garbage collector. One run of it may cost as much as a hundred images, and the few batches with fast images
    may have it or not."""

    seconds = began = 0.0

    def __call__(self, phase, _):
        now = time.thread_time()
        if phase == "start":
            self.began = now
        else:
            self.seconds += max(0.0, now - self.began)


collected = Collected()


@guarded
def fast_images():
    """The package's modules of fast images, not installed, in a process that has imported what they serve; none where they cannot be had,
    and where the script has them already."""
    if not hook.settings.get("compare_images") or not any(name in sys.modules for name in SERVED) or any(name in sys.modules for name in FAST_IMAGES):
        return []
    if hook.fast is None:
        gc.callbacks.append(collected)
        hook.fast, refused = [], []
        for name in FAST_IMAGES:
            try:
                hook.fast.append(not_installed(name))
            except Exception as error:
                refused.append(refusal(error))
        hook.no_fast = refused[0] if refused and not hook.fast else None
    return hook.fast


#: Functions of libraries whose names a script may have taken before fast images are tried.
SWITCHED = {"cv2": ("imread", "imdecode"), "torchvision.io": ("decode_jpeg", "decode_image", "read_image"), "simplejpeg": ("decode_jpeg",)}


class Switch:
    """Looks up at each call what is in a function's place."""

    inside = threading.local()

    def __init__(self, owner, name, original):
        functools.update_wrapper(self, original)
        self.owner, self.name, self.original = owner, name, original

    def __call__(self, *args, **kwargs):
        now = vars(self.owner).get(self.name)
        if now is self or now is None or getattr(self.inside, "on", False):
            return self.original(*args, **kwargs)
        self.inside.on = True
        try:
            return now(*args, **kwargs)
        finally:
            self.inside.on = False

    def __reduce__(self):
        # Pickle finds it by its name.
        return self.name


def switch(module):
    """Has a library's functions be found by scripts that have taken their names."""
    for name in SWITCHED.get(module.__name__, ()):
        original = vars(module).get(name)
        owner = sys.modules.get(getattr(original, "__module__", None), module)
        if vars(owner).get(name) is not original:
            owner = module
        if original is not None:
            vars(module)[name] = vars(owner)[name] = Switch(owner, name, original)


def not_installed(name):
    """A module of fast images, imported, and as if it were not: a script that imports it wants it installed, which its import does."""
    import importlib

    package, _, own = name.rpartition(".")
    setting = f"STOKEHOLD_{own.upper()}"
    before = os.environ.get(setting)
    os.environ[setting] = "off"
    try:
        module = importlib.import_module(name)
    finally:
        os.environ.pop(setting)
        if before is not None:
            os.environ[setting] = before
        sys.modules.pop(name, None)
        if own in vars(sys.modules.get(package, hook)):
            delattr(sys.modules[package], own)
    return module


class Device:
    """CUDA, watched without waiting for it: events in the stream are read when they are done."""

    def __init__(self, torch):
        self.torch = torch
        self.busy = self.idle = 0.0
        #: Whether any pair of events was read.
        self.counted = False
        self.unpinned = 0
        self.floats = 0
        #: Copies to the device since they were asked for last.
        self.copied = 0.0
        #: The begin and the end of steps; None between steps that do not follow each other.
        self.pairs = []
        self.begin = None
        self.step_end = None
        self.last_end = None
        wrap_transfers(torch, self)

    def event(self):
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def given(self):
        """A batch is there: what is put into the stream from now on is its step's."""
        self.begin, self.step_end = self.event(), None
        self.read()

    def stepped(self):
        if self.begin is not None:
            self.step_end = self.event()

    def closed(self, stepped):
        """The events of the batch that the program has done with."""
        begin, end = self.begin, self.step_end
        self.begin = self.step_end = None
        if begin is None:
            return None
        return begin, (end if stepped and end is not None else self.event())

    def taken(self):
        copied, self.copied = self.copied, 0.0
        return copied

    def count(self, events):
        """Counts a batch that was trained on; None for one that was not."""
        if len(self.pairs) < EVENTS:
            self.pairs.append(events)

    def read(self):
        while self.pairs and (self.pairs[0] is None or self.pairs[0][1].query()):
            pair = self.pairs.pop(0)
            if pair is None:
                self.last_end = None
                continue
            begin, end = pair
            self.busy += begin.elapsed_time(end) / 1e3
            if self.last_end is not None:
                self.idle += max(0.0, self.last_end.elapsed_time(begin) / 1e3)
            self.last_end, self.counted = end, True


def cuda_is_used(torch):
    cuda = getattr(torch, "cuda", None)
    used = getattr(cuda, "is_initialized", None)
    return bool(used and used())


def wrap_transfers(torch, device):
    for name in ("to", "cuda"):
        original = getattr(torch.Tensor, name)

        def transfer(tensor, *args, _original=original, **kwargs):
            if tensor.device.type != "cpu" or hook is None or hook.off:
                return _original(tensor, *args, **kwargs)
            begin = time.time()
            result = _original(tensor, *args, **kwargs)
            if result.device.type != "cpu":
                note_transfer(device, tensor, begin)
            return result

        setattr(torch.Tensor, name, functools.wraps(original)(transfer))


@guarded
def note_transfer(device, tensor, begin):
    end = time.time()
    device.copied += end - begin
    if not tensor.is_pinned():
        device.unpinned += 1
    # Batches of images, as 32 bits a number.
    if tensor.dim() >= 4 and tensor.is_floating_point() and tensor.element_size() == 4:
        device.floats += 1
    hook.span(b"transfer", begin, end)


def images_of(batch, otherwise):
    """The first dimension of the first tensor in a batch."""
    for _ in range(8):
        if isinstance(batch, dict):
            batch = next(iter(batch.values()), None)
        elif isinstance(batch, (list, tuple)):
            batch = next(iter(batch), None)
        else:
            break
    shape = member(batch, "shape")
    if isinstance(shape, tuple) and shape:
        return number_or(shape[0], 1)
    return int(otherwise or 1)


def bytes_of(batch):
    """Of the tensors in a batch, of which the first thousand parts are looked at."""
    torch, total, parts = sys.modules.get("torch"), 0, [batch]
    for part in parts:
        if torch is not None and isinstance(part, torch.Tensor):
            total += part.element_size() * part.numel()
        elif type(part) is dict:
            parts.extend(list(part.values())[: max(0, 1000 - len(parts))])
        elif type(part) in (list, tuple) or hasattr(part, "_fields"):
            parts.extend(itertools.islice(part, max(0, 1000 - len(parts))))
    return total


# What is wrapped in torch.


def patch_dataloader(module):
    loader_class = module.DataLoader
    wrap_init(loader_class)
    wrap_iter(loader_class)
    if hook.torch is None:
        hook.torch = sys.modules.get("torch")
    if not records():
        return
    watch_threads()
    iterator = getattr(module, "_BaseDataLoaderIter", None)
    if iterator is None:
        hook.problem("this torch has no _BaseDataLoaderIter: waits are not seen")
    else:
        iterator.__next__ = watched_next(iterator.__next__)
    kind = getattr(module, "_DatasetKind", None)
    if kind is None or not hasattr(kind, "create_fetcher"):
        hook.problem("this torch has no _DatasetKind.create_fetcher: what workers do is not seen")
    else:
        kind.create_fetcher = staticmethod(watched_fetcher(kind.create_fetcher))


def records():
    """Whether what the program does is recorded, and not only changed."""
    return bool(hook.settings.get("folder") or os.environ.get("STOKEHOLD_TIMELINE"))


def wrap_init(loader_class):
    settings = hook.settings
    if settings.get("workers") is None and not any(settings.get(name) for name in ("persistent", "pin", "prefetch")):
        return
    original = loader_class.__init__
    import inspect

    signature = inspect.signature(original)

    @functools.wraps(original)
    def init(self, *args, **kwargs):
        try:
            bound = signature.bind(self, *args, **kwargs)
            changed(bound.arguments)
            args, kwargs = bound.args[1:], bound.kwargs
        except TypeError:
            # The program's own mistake, which torch reports.
            pass
        original(self, *args, **kwargs)

    loader_class.__init__ = init


def changed(arguments):
    """The arguments of a DataLoader as the settings want them."""
    settings = hook.settings
    dataset = arguments.get("dataset")
    of = f"the DataLoader over {type(dataset).__name__}"
    workers = settings.get("workers")
    # Batches that Stokehold makes have no workers, but this many threads.
    if workers is not None and not (settings.get("swap") and arguments.get("num_workers", 0) == workers):
        if is_iterable(dataset):
            tell(f"num_workers of {of} stays as it is: its data set is iterable, and each worker might yield all of it", True)
        else:
            change(arguments, "num_workers", workers, of)
            if workers == 0:
                for name in ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context"):
                    arguments.pop(name, None)
    if settings.get("pin"):
        change(arguments, "pin_memory", True, of)
    for name, value in (("persistent_workers", settings.get("persistent")), ("prefetch_factor", settings.get("prefetch"))):
        if value and arguments.get("num_workers", 0) > 0:
            change(arguments, name, value, of)
        elif value:
            tell(f"{name} of {of} stays as it is: it has no workers", True)


def change(arguments, name, value, of):
    """Changes an argument of a loader."""
    if arguments.get(name, 0) == value:
        tell(f"{of} has {name}={value} already")
    else:
        arguments[name] = value
        tell()


def tell(why_not=None, says=False, made="made"):
    """Notes for the command that asked for changes that one was made, or why one was not; the latter may be said to the user at once."""
    if why_not is not None and says:
        say(why_not)
    folder, note = hook.settings.get("told"), (why_not, says, made)
    if not folder or note in hook.told:
        return
    hook.told.add(note)
    try:
        with open(os.path.join(folder, made if why_not is None else "not-made"), "a", encoding="utf-8") as file:
            # What was said is not said again.
            file.write("" if why_not is None or says else f"{why_not}\n")
    except OSError as error:
        hook.problem(f"what was changed is not noted: {error}")


def wrap_iter(loader_class):
    original = loader_class.__iter__

    @functools.wraps(original)
    def iterate(self):
        # Before workers are forked, and no part of their start.
        fast_images()
        began = time.time()
        facts = begin_iteration(self)
        if facts is not None and hook.settings.get("swap"):
            iterator = swapped(self, facts)
            if iterator is not None:
                watch(iterator, facts, began)
                return iterator
        if facts is not None:
            os.environ[LOADER] = f"{facts.number} {hook.rank} {hook.world} {hook.pid} {fast_batches(facts)}"
        try:
            iterator = original(self)
        finally:
            os.environ.pop(LOADER, None)
        if facts is not None:
            watch(iterator, facts, began)
        return iterator

    loader_class.__iter__ = iterate


@guarded
def fast_batches(facts):
    """How many batches each process fetches with fast images in the pass that begins: some in the first one of a loader."""
    about = facts.described
    if facts.train.iterations + facts.evaluate.iterations or not hook.settings.get("compare_images"):
        return 0
    all_batches = about["batches"] or FAST_BATCHES / FAST_SHARE
    # Enough images to tell, in small batches too.
    least = max(3, -(-FAST_IMAGES_LEAST // max(1, about["batch_size"] or 1)))
    return -(-min(FAST_BATCHES, max(least, int(FAST_SHARE * all_batches))) // min(FAST_WORKERS, max(1, about["num_workers"])))


@guarded
def begin_iteration(loader):
    if hook.fetching is not None:
        # A worker's data set has a loader of its own.
        return None
    if not hook.iterated:
        hook.iterated = True
        # Processes that the script itself has started have no variable that says which of them they are.
        ranks = getattr(hook.torch, "distributed", None)
        if ranks is not None and ranks.is_available() and ranks.is_initialized():
            hook.place(ranks.get_rank(), ranks.get_world_size())
    facts = getattr(loader, "_stokehold", None)
    if facts is None or facts.loader() is not loader or facts.pid != os.getpid():
        facts = facts_of(loader)
        object.__setattr__(loader, "_stokehold", facts)
    return facts


def facts_of(loader):
    """The facts of a loader that is iterated for the first time; None where there are too many."""
    about = described(loader)
    if len(hook.loaders) >= LOADERS:
        for facts in hook.loaders:
            if facts.loader() is None and facts.is_of_kind(about):
                facts.take(loader, about)
                return facts
    if len(hook.loaders) >= MOST_LOADERS:
        hook.problem(f"the script iterates more than {MOST_LOADERS} loaders, of which these are not seen")
        return None
    facts = LoaderFacts(len(hook.loaders), loader, about)
    hook.loaders.append(facts)
    pipeline_of(loader, facts)
    return facts


@guarded
def watch(iterator, facts, began):
    iteration = Iteration(facts, began)
    iteration.started = time.time()
    try:
        iterator._stokehold = iteration
    except AttributeError:
        hook.problem(f"a DataLoader is iterated by a {type(iterator).__name__} of the script's own: its waits are not seen")
        return
    facts.going.append(iteration)
    # A loop that was left keeps no more than the last few.
    while len(facts.going) > 4:
        facts.going[0].leave(time.time())


def watched_next(original):
    @functools.wraps(original)
    def watched(self):
        iteration = getattr(self, "_stokehold", None)
        if iteration is None or hook is None or hook.off:
            return original(self)
        asked = time.time()
        note_asked(iteration, asked)
        try:
            batch = original(self)
        except StopIteration:
            note_end(iteration, asked, time.time())
            raise
        note_got(iteration, asked, batch)
        return batch

    return watched


@guarded
def note_asked(iteration, now):
    iteration.asked(now, spent())


@guarded
def note_got(iteration, asked, batch):
    iteration.got(asked, time.time(), spent(), images_of(batch, iteration.facts.described["batch_size"]))


@guarded
def note_end(iteration, asked, now):
    iteration.end(now)
    ended, iteration.facts.ended = iteration.facts.ended, None
    if ended is not None:
        ended.end_seconds += now - asked


def watched_fetcher(original):
    @functools.wraps(original)
    def create(*args, **kwargs):
        fetcher = original(*args, **kwargs)
        watch_fetcher(fetcher)
        return fetcher

    return create


@guarded
def watch_fetcher(fetcher):
    said = os.environ.get(LOADER, "").split()
    data = sys.modules.get("torch.utils.data")
    info = data.get_worker_info() if data is not None else None
    worker = None if info is None else info.id
    loader, fast = None, 0
    if len(said) == 5:
        loader, rank, world, hook.owner, fast = map(int, said)
        hook.place(rank, world)
    if worker is not None:
        if hook.fetching is None:
            # A worker ends without calling what atexit has.
            from multiprocessing import util

            util.Finalize(None, hook.finish, exitpriority=0)
            hook.fetching = Fetching(loader, worker, hook.age + time.time() - hook.born)
        fetching = hook.fetching
    elif loader is not None and loader < len(hook.loaders):
        facts = hook.loaders[loader]
        fetching = facts.fetching = facts.fetching or Fetching(loader, None, 0.0)
    else:
        return
    if fast and fetching.fast is None and (worker or 0) < FAST_WORKERS:
        modules = fast_images()
        fetching.fast = Fast(modules, fast) if modules else None
    original, counts_before = fetcher.fetch, guarded(fetch_counts)
    rest = b"" if worker is None else b" worker=%d" % worker

    def fetch(indices):
        if getattr(fetching.busy, "on", False):
            # A data set that has a loader of its own.
            return original(indices)
        fetching.busy.on = True
        try:
            return watched(indices)
        finally:
            fetching.busy.on = False

    def watched(indices):
        if fetching.process_began is None:
            fetching.process_began = time.process_time()
        fast = begin_fast(fetching)
        # The clock comes last here and first at the end: reading the others is no part of a fetch.
        before = counts_before()
        # Counting is a read too.
        reads = own_reads()
        begin = time.time()
        try:
            batch = original(indices)
            note_fetched(fetching, begin, before, reads, indices, batch, rest, fast)
        finally:
            if fast:
                end_fast(fetching)
        return batch

    fetcher.fetch = fetch


@guarded
def begin_fast(fetching):
    fast = fetching.fast is not None and fetching.fast.begin(fetching.batches + fetching.fast.batches)
    fetching.collected = collected.seconds
    return fast


def end_fast(fetching):
    # Whatever became of the hook, the script has its libraries back.
    try:
        fetching.fast.end()
    except Exception as error:
        hook.problem(f"fast images: {error!r}")


@guarded
def note_fetched(fetching, begin, before, reads, indices, batch, rest, fast):
    now = time.time()
    after = own_reads()
    helped, *counts = before
    lacked, cpu = (max(0.0, end - start) for start, end in zip(counts, (own_lacked(), time.thread_time())))
    wait = max(0.0, now - begin - cpu - lacked)
    images = len(indices) if isinstance(indices, (list, tuple)) else images_of(batch, 1)
    if not fetching.batches:
        fetching.batch_bytes = bytes_of(batch)
        fetching.first_seconds, fetching.first_cpu_seconds = wait + cpu, cpu
    without_collections = max(0.0, cpu - (collected.seconds - fetching.collected))
    if fast:
        fetching.fast.count(images, without_collections)
        hook.span(b"DataLoaderWorker", begin, now, rest)
        return
    if fetching.batches:
        fetching.plain_images += images
        fetching.plain_cpu_seconds += without_collections
        each = (wait + cpu) / max(1, images)
        fetching.later += 1
        fetching.later_seconds += each
        fetching.later_squares += each * each
    fetching.batches += 1
    fetching.images += images
    fetching.wait_seconds += wait
    fetching.doubt_seconds += helped.part(wait)
    if reads is None or after is None:
        fetching.read_bytes = None
    else:
        if after[1] > reads[1]:
            # Bytes came from a disk. What a call reads may have been in memory, or be a pipe.
            fetching.reading_seconds += wait
        if fetching.read_bytes is not None:
            fetching.read_bytes += max(0, after[0] - reads[0] - reads[2], after[1] - reads[1])
    fetching.cpu_seconds += cpu
    hook.span(b"DataLoaderWorker", begin, now, rest)
    if rest:
        # A worker may be ended at any time: it is at most a batch behind, or a second.
        hook.flush(now)


def patch_optimizer(module):
    if not records():
        return
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register is None:
        hook.problem("this torch has no register_optimizer_step_post_hook (it is older than 2.0): steps are not seen")
        return

    def stepped(optimizer, args, kwargs):
        note_step()
        if hook is not None and hook.settings.get("gradients"):
            note_gradients(optimizer)

    register(stepped)


@guarded
def note_step():
    hook.optimizer_steps += 1
    hook.optimizer_end, hook.stepping = time.time(), threading.get_ident()
    if hook.device is not None:
        hook.device.stepped()


@guarded
def note_gradients(optimizer):
    """Sends the norm of all gradients of every fiftieth step. On a device it is computed there and read when it is done."""
    waiting, hook.norm = hook.norm, None
    if waiting is not None:
        norm, step, event = waiting
        if event.query():
            hook.metric("gradient_norm", float(norm), step)
        else:
            hook.norm = waiting
    if hook.rank or hook.norm is not None or (hook.optimizer_steps - 1) % GRADIENTS:
        return
    total = None
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = parameter.grad
            if gradient is None or gradient.is_sparse:
                continue
            norm = gradient.detach().float().norm()
            total = norm * norm if total is None else total + (norm * norm).to(total.device)
    if total is None:
        return
    norm = total.sqrt()
    if norm.device.type == "cuda":
        event = hook.torch.cuda.Event()
        event.record()
        hook.norm = (norm, hook.optimizer_steps, event)
    else:
        hook.metric("gradient_norm", float(norm), hook.optimizer_steps)


# Batches that Stokehold makes.


def pipeline_of(loader, facts):
    """The transforms as Stokehold has them, for a prediction, if the settings ask for it."""
    if not hook.settings.get("convert"):
        return
    try:
        from stokehold import torch as own

        facts.pipeline = own.pipeline_of(loader)
    except Exception as error:
        facts.swap_refused = refusal(error)


def refusal(error):
    """Why Stokehold does not make a loader's batches."""
    if isinstance(error, ImportError):
        return f"the Python package stokehold is not installed in this Python ({error}): python/build in Stokehold's repository makes it"
    return str(error)


class Swap:
    """What makes batches in a loader's place, or why nothing does. The loader keeps it, so it ends with the loader."""

    def __init__(self, loader):
        # `copy.copy` shares what it copies: a copy keeps nothing alive that is of this loader.
        self.loader = weakref.ref(loader, self.end)
        self.images = self.refused = None
        dataset = type(member(loader, "dataset")).__name__
        try:
            from stokehold import torch as own

            if isinstance(loader, own.DataLoader):
                # It makes its batches here without this.
                return
            self.images = own.InPlaceOf(loader, hook.settings.get("workers"))
            say(f"makes the batches of the DataLoader over {dataset}")
            tell()
        except Exception as error:
            self.refuse(dataset, error)

    def end(self, _):
        self.images = None

    def __reduce__(self):
        # A copy of a loader has its own.
        return type(None), ()

    def refuse(self, dataset, error):
        self.images, self.refused = None, refusal(error)
        tell(f"the DataLoader over {dataset} stays PyTorch's: {self.refused}", True)


#: What was said already.
said = set()


def say(text):
    """Tells the user something, once."""
    if text not in said:
        said.add(text)
        sys.stderr.write(f"stokehold: {text}\n")


def swapped(loader, facts):
    """Stokehold's batches for this loader; None where it has to stay as it is, and why is said once."""
    try:
        swap = getattr(loader, "_stokehold_swap", None)
        if swap is None or swap.loader() is not loader:
            swap = Swap(loader)
            object.__setattr__(loader, "_stokehold_swap", swap)
        iterator = None
        if swap.images is not None:
            try:
                iterator = iter(swap.images)
            except Exception as error:
                if getattr(error, "_of_the_script", False):
                    # PyTorch's loader would raise it too.
                    raise
                swap.refuse(type(member(loader, "dataset")).__name__, error)
        facts.swapped, facts.swap_refused = iterator is not None, swap.refused
        return iterator
    except Exception as error:
        if getattr(error, "_of_the_script", False):
            raise
        hook.problem(f"a loader is not swapped: {error!r}")
        return None


# Images that Stokehold decodes.

#: One image of so many is compared with Pillow's or another library's, which tells the time that the others save, too.
COMPARED = 100


def patch_pillow(module):
    """Has stokehold.pillow open JPEGs: before workers are forked, so that they need not do it each."""
    if not hook.settings.get("images"):
        return
    try:
        from stokehold import pillow

        setting = os.environ.get("STOKEHOLD_PILLOW", "")
        # A script that asks for more comparisons gets them.
        every = None if setting.startswith("check") else COMPARED
        why_not = None if pillow.install(every, hook.settings.get("told")) else f"STOKEHOLD_PILLOW={setting}"
        if why_not is not None and setting != "off":
            why_not = "stokehold.pillow steps aside (see the warning)"
    except Exception as error:
        why_not = refusal(error)
    told_of_images("Pillow", why_not)


def patch_decoder(module):
    """Has stokehold.decoders serve a library that decodes JPEGs."""
    if module.__name__ == "cv2" and hasattr(sys, "OpenCV_LOADER"):
        # The part of cv2 that it imports under its own name.
        return
    if hook.settings.get("compare_images"):
        switch(module)
    if not hook.settings.get("images"):
        return
    why_not = None
    try:
        from stokehold import decoders

        setting = os.environ.get("STOKEHOLD_DECODERS", "")
        every = None if setting.startswith("check") else COMPARED
        if not decoders.install(every, hook.settings.get("told")):
            why_not = f"STOKEHOLD_DECODERS={setting}" if setting == "off" else f"stokehold.decoders leaves {module.__name__} alone (see the warning)"
    except Exception as error:
        why_not = refusal(error)
    told_of_images(module.__name__, why_not)


def told_of_images(library, why_not):
    """Notes what became of fast images."""
    if why_not is None:
        tell(made="made-images")
    elif not hook.settings.get("swap"):
        # Where loaders are swapped, images are only for those that stay PyTorch's, and why these do is said.
        tell(f"images stay {library}'s: {why_not}", True)


# The start.

PATCHES = {
    "PIL.Image": patch_pillow,
    "cv2": patch_decoder,
    "torchvision.io": patch_decoder,
    "simplejpeg": patch_decoder,
    "turbojpeg": patch_decoder,
    "torch.utils.data.dataloader": patch_dataloader,
    "torch.optim.optimizer": patch_optimizer,
}


class Finder(importlib.abc.MetaPathFinder):
    """Finds modules as Python does, and wraps what it is about when they have been loaded."""

    def __init__(self):
        #: What is being found, by other finders too.
        self.finding = set()

    def find_spec(self, name, path=None, target=None):
        patch = PATCHES.get(name)
        if patch is None or name in self.finding:
            return None
        self.finding.add(name)
        try:
            return self.found(name, path, target, patch)
        finally:
            self.finding.discard(name)

    def found(self, name, path, target, patch):
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = Loading(spec.loader, patch)
                return spec
        return None


class Loading(importlib.abc.Loader):
    """A module's loader, which calls `patch` afterwards."""

    def __init__(self, loader, patch):
        self._loader = loader
        self._patch = patch

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        # A caller that asks the module for its loader gets the real one.
        module.__loader__ = module.__spec__.loader = self._loader
        if hook is None or hook.off:
            return
        try:
            self._patch(module)
        except Exception as error:
            hook.problem(f"{module.__name__} is not watched: {error!r}")

    def __getattr__(self, name):
        return getattr(self._loader, name)


def after_fork():
    """A forked process has counters of its own, and not its parent's socket."""
    if hook is not None:
        python_threads.clear()
        hook.begin()


def mark_start():
    """Leaves a sign that the hook has started in a process, where the counters are and where changes are noted."""
    for folder in filter(None, map(hook.settings.get, ("folder", "told"))):
        try:
            os.close(os.open(os.path.join(folder, STARTED), os.O_CREAT | os.O_WRONLY, 0o644))
        except OSError:
            # The writing of counters says so.
            pass


def start():
    """Makes the hook, unless the environment has no settings for one."""
    global hook
    text = os.environ.get(SETTINGS)
    if not text:
        return
    hook = Hook(json.loads(text))
    hook.age = age()
    mark_start()
    sys.meta_path.insert(0, Finder())
    atexit.register(hook.finish)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=after_fork)

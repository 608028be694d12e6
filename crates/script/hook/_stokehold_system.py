"""What the system counts of this process's threads, for the hook.

Nothing here fails: where the system does not count something, it is 0 or None.
"""

import functools
import os
import resource
import signal
import threading
import time

#: Seconds: who asks again within these gets the same answer. The end of a batch and the beginning of the next are so near.
NEAR = 2e-4
#: The share of the time that looking at other threads may take.
LOOKING = 0.01
#: The most threads of which numbers are remembered.
THREADS = 10000


def age():
    """Seconds since this process was started; 0 where the system does not say."""
    try:
        with open("/proc/self/stat", "rb") as file:
            # proc(5): field 22; what follows the name, which may have spaces, begins with field 3.
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (AttributeError, IndexError, OSError, ValueError):
        return 0.0


def schedstat(thread):
    """Seconds for which a thread ran, and for which it could run and had no core; zeros where the system does not say."""
    try:
        with open(f"/proc/self/task/{thread}/schedstat", "rb") as file:
            ran, lacked = file.read().split()[:2]
        return int(ran) / 1e9, int(lacked) / 1e9
    except (OSError, ValueError):
        return 0.0, 0.0


class OpenFile:
    """A file that stays open. A program may close every number that it finds, and open files of its own under it: these are neither
    read nor closed here."""

    def __init__(self, path):
        self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.is_of = self.identity()

    def identity(self, fstat=os.fstat):
        try:
            found = fstat(self.number)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def is_there(self):
        return self.identity() == self.is_of

    def __del__(self, close=os.close):
        # It may not have been opened.
        if hasattr(self, "is_of") and self.is_there():
            close(self.number)


class Own(threading.local):
    """What is kept for the calling thread."""

    def __init__(self):
        self.process, self.files = os.getpid(), {}
        #: What `own_lacked` found last, and when.
        self.lacked, self.asked = 0.0, 0.0
        #: When `Helped` may look again.
        self.next_look = 0.0
        #: The share of its wait for which others computed in the last fetch that was looked at.
        self.share = 0.0

    def text(self, name):
        """What one of the thread's files says now: opening one takes as long as several readings. None where the system does not
        have it."""
        if self.process != os.getpid():
            self.process, self.files = os.getpid(), {}
        file = self.files.get(name)
        try:
            # What the system does not have is not looked for again.
            if file is None or file and not file.is_there():
                self.files[name] = False
                file = self.files[name] = OpenFile(f"/proc/self/task/{threading.get_native_id()}/{name}")
            return os.pread(file.number, 512, 0) if file else None
        except OSError:
            return None


own = Own()


def own_lacked():
    """Seconds for which the calling thread could run and had no core."""
    now = time.monotonic()
    if now - own.asked < NEAR:
        return own.lacked
    text = own.text("schedstat")
    try:
        own.lacked = 0.0 if text is None else int(text.split(None, 2)[1]) / 1e9
    except (IndexError, ValueError):
        own.lacked = 0.0
    own.asked = now
    return own.lacked


def own_reads():
    """Bytes that the calling thread has read, by calls and from disks, and the bytes that asking for this adds. Without these counts,
    None."""
    text = own.text("io")
    try:
        words = text.split(None, 10)
        return int(words[1]), int(words[9]), len(text)
    except (AttributeError, IndexError, ValueError):
        return None


#: How many threads each thread has started so far.
started = {}
#: The system's numbers of Python's threads, also of those that have ended for Python and not yet for the system.
python_threads = set()


def watch_threads():
    """Counts the threads that the program starts: what one computed that has ended is nowhere else to be seen."""
    start = threading.Thread.start

    @functools.wraps(start)
    def counted(self):
        thread = threading.get_ident()
        started[thread] = started.get(thread, 0) + 1
        start(self)
        if len(python_threads) < THREADS:
            python_threads.add(self.native_id)

    threading.Thread.start = counted


class Helped:
    """For which part of a fetch's wait others may have computed. Looking at a thread takes 10 us or more, so with many threads not every
    fetch is looked at, and the others have the share of the last one."""

    def __init__(self):
        begin = time.monotonic()
        self.looks = begin >= own.next_look
        self.new = started.get(threading.get_ident(), 0)
        self.before = helped() if self.looks else 0.0
        self.took = time.monotonic() - begin

    def part(self, wait):
        """Seconds of the wait."""
        if started.get(threading.get_ident(), 0) > self.new:
            return wait
        if not self.looks:
            return wait * own.share
        begin = time.monotonic()
        part = min(wait, max(0.0, helped() - self.before))
        own.share = part / wait if wait > 0 else 0.0
        now = time.monotonic()
        own.next_look = now + (self.took + now - begin) / LOOKING
        return part


def helped():
    """Seconds for which other Python threads of this process ran or lacked a core, and those of child processes that have ended.
    The threads that send batches are left out, because they send the last one while the next is fetched; and threads of
    libraries, because those of OpenMP spin while they wait."""
    number = threading.get_native_id()
    total = 0.0
    for thread in threading.enumerate():
        if thread.native_id not in (number, None) and not thread.name.startswith("QueueFeederThread"):
            total += sum(schedstat(thread.native_id))
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return total + children.ru_utime + children.ru_stime


def fetch_counts():
    """What is counted of the calling thread before a fetch."""
    return Helped(), own_lacked(), time.thread_time()


def library_threads():
    """How many threads of this process are not Python's, and their CPU time: OpenMP's, BLAS's, a decoder's."""
    known = python_threads.union(thread.native_id for thread in threading.enumerate())
    try:
        others = [thread for thread in os.listdir("/proc/self/task") if int(thread) not in known]
    except (OSError, ValueError):
        return 0, 0.0
    return len(others), sum(schedstat(thread)[0] for thread in others)


def is_of_a_handler(error):
    """Whether a handler of signals that the program has set has raised this, wherever the program was."""
    codes, place = set(), error.__traceback__
    while place is not None:
        codes.add(place.tb_frame.f_code)
        place = place.tb_next
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        handler = getattr(handler, "func", handler)
        if getattr(getattr(handler, "__func__", handler), "__code__", None) in codes:
            return True
    return False

//! Parts of the hook by themselves, in a Python without torch.

use std::path::Path;
use std::process::Command;

use stokehold_untested::needs;

/// Runs a text in a Python that finds the hook's modules.
fn python(text: &str) {
    let Some(python) = needs::torch() else { return };
    let hook = Path::new(env!("CARGO_MANIFEST_DIR")).join("hook");
    let output = Command::new(python)
        .args(["-c", text])
        .env("PYTHONPATH", hook)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// However many threads a script has: looking at them takes a hundredth of the time.
#[test]
fn other_threads_are_looked_at_now_and_then() {
    python(
        r"
import time
import _stokehold_system as system

looks = 0

def slow():
    global looks
    looks += 1
    time.sleep(0.02)
    return 0.01 * looks

system.helped = slow
end, fetches = time.monotonic() + 0.5, 0
parts = []
while time.monotonic() < end:
    parts.append(system.Helped().part(0.1))
    fetches += 1
assert looks == 2 and fetches > 100, (looks, fetches)
# Every fetch has the share that was seen.
assert all(abs(part - 0.01) < 1e-9 for part in parts), set(parts)
",
    );
}

/// A script may close every file that it finds, and open others under their numbers.
#[test]
fn files_of_the_script_are_neither_read_nor_closed() {
    python(
        r"
import os
import _stokehold_system as system

assert system.own_reads() is not None or not os.path.exists('/proc/self/io')
numbers = [file.number for file in system.own.files.values()]
for number in numbers:
    os.close(number)
read, write = os.pipe()
for number in numbers:
    os.dup2(read, number)
system.own_reads()
system.own.files.clear()
os.write(write, b'x' * len(numbers))
for number in numbers:
    assert os.read(number, 1) == b'x'
",
    );
}

/// An error of the hook ends the hook; what a handler of signals raises is the script's.
#[test]
fn exceptions_of_handlers_reach_the_script() {
    python(
        r"
import functools, os, signal, time
import _stokehold_hook as module

class Late(Exception):
    pass

def late(*_):
    raise Late()

class Watch:
    def late(self, *_):
        raise Late()

@module.guarded
def interrupted():
    os.kill(os.getpid(), signal.SIGALRM)
    time.sleep(1)

@module.guarded
def broken():
    raise ValueError('a fault')

for handler in (late, Watch().late, functools.partial(late, 1)):
    module.hook = module.Hook({})
    signal.signal(signal.SIGALRM, handler)
    try:
        interrupted()
        raise SystemExit('it was swallowed')
    except Late:
        pass
    assert not module.hook.off
    broken()
    assert module.hook.off and 'a fault' in module.hook.problems[0]
",
    );
}

/// Many threads write the counters of a process, one at a time.
#[test]
fn counters_are_written_by_one_thread_at_a_time() {
    python(
        r"
import json, os, tempfile, threading, time
import _stokehold_hook as module

with tempfile.TemporaryDirectory() as folder:
    hook = module.hook = module.Hook({'folder': folder})
    def write():
        for _ in range(50):
            hook.next_write = 0
            hook.flush(time.time())
    threads = [threading.Thread(target=write) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    hook.flush(time.time(), last=True)
    assert not hook.has_failed
    (name,) = os.listdir(folder)
    assert json.load(open(os.path.join(folder, name)))['pid'] == os.getpid()
    # A failure is no end: the next time it may be written.
    hook.settings['folder'] = folder + '/missing'
    hook.write()
    assert hook.has_failed
    hook.settings['folder'] = folder
    hook.write()
    assert os.path.exists(os.path.join(folder, f'{os.getpid()}.json'))
",
    );
}

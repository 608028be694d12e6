#!/usr/bin/env python3
"""A job with a planted bottleneck, watched in the studio from its start to its fix: pictures in order.

    bench/studio.py OUT [--stokehold PATH]

The job trains with an emulated accelerator on made photos, whose reads are 30 ms late, by one worker. It is started from the
page Start, watched, and copied with one setting changed: eight workers, whose reads overlap. Needs chromedriver and
chromium-headless-shell (Debian: chromium-driver, chromium-headless-shell). OUT gets the pictures.
"""

import argparse
import base64
import json
import pathlib
import subprocess
import tempfile
import time
import urllib.request

JOB = """\
entry-point = "train.sh"
name = "one-worker"

[channels.train]
uri = "../photos"
mode = "FastFile"

[hyperparameters]
model = "resnet18"
trainer = "emulated"
images-per-second = 150
read-latency = "30ms"
workers = 1
batch-size = 16
epochs = 4

[[metrics]]
name = "images-per-second"
regex = "step .* ([0-9.]+) images/s"

[[metrics]]
name = "waited-percent"
regex = "step .* waited ([0-9.]+) %"

[profiler]
interval = "500ms"
"""
KEY = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    def __init__(self):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        for line in self.driver.stdout:
            if "successfully on port " in line:
                self.url = "http://127.0.0.1:" + line.split("successfully on port ")[1].strip(" .\n")
                break
        args = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        options = {"args": args, "binary": "/usr/bin/chromium-headless-shell"}
        made = self.send("/session", {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}})
        self.url += "/session/" + made["sessionId"]
        self.send("/chromium/send_command_and_get_result", {
            "cmd": "Emulation.setDeviceMetricsOverride",
            "params": {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False},
        })

    def send(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data), timeout=120) as answer:
            return json.load(answer)["value"]

    def go(self, url):
        self.send("/url", {"url": url})

    def run(self, script):
        return self.send("/execute/sync", {"script": script, "args": []})

    def until(self, what, test, seconds=180):
        end = time.monotonic() + seconds
        while not self.run(f"return Boolean({test})"):
            if time.monotonic() > end:
                raise SystemExit(f"after {seconds} s still not: {what}")
            time.sleep(0.3)

    def click(self, selector):
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def picture(self, path):
        path.write_bytes(base64.b64decode(self.send("/screenshot")))
        print(path)

    def close(self):
        self.driver.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--stokehold", default="target/release/stokehold", type=pathlib.Path)
    options = parser.parse_args()
    program, out = options.stokehold.resolve(), options.out
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        subprocess.run([program, "dataset", "synth", work / "photos", "--images", "512", "--classes", "4"], check=True)
        source = work / "runs" / "flowers"
        source.mkdir(parents=True)
        (source / "job.toml").write_text(JOB.replace("../photos", str(work / "photos")))
        script = source / "train.sh"
        script.write_text(f"#!/bin/sh\nexec {program} job trainer\n")
        script.chmod(0o755)
        studio = subprocess.Popen(
            [program, "studio", "--listen", "127.0.0.1:0", "--jobs", work / "jobs", "--runs", work / "runs"],
            stdout=subprocess.PIPE, text=True,
        )
        browser = Browser()
        try:
            story(browser, studio.stdout.readline().strip(), work, out)
        finally:
            browser.close()
            studio.terminate()
            studio.wait()


def wait_for(work, name):
    """Until the job has ended and its recording is whole."""
    record = work / "jobs" / name / "state.json"
    while json.loads(record.read_text()).get("status") not in ("Completed", "Failed", "Stopped"):
        time.sleep(1)
    time.sleep(5)


def story(browser, link, work, out):
    host = link.split("/?")[0]
    browser.go(link)
    browser.until("the first page", "document.querySelector('main h1')")
    # It is started.
    browser.go(f"{host}/start?file=runs/flowers/job.toml&by=form")
    browser.until("a job without a fault", "document.getElementById('start')?.disabled === false")
    browser.picture(out / "1-start.png")
    browser.click("#start")
    browser.until("its page", "location.pathname === '/run'")
    time.sleep(40)
    browser.picture(out / "2-slow.png")
    wait_for(work, "one-worker")
    browser.go(f"{host}/run?key=jobs/one-worker")
    browser.until("the end", "document.getElementById('clone')")
    time.sleep(3)
    browser.picture(out / "3-advice.png")
    # It is copied, with one setting changed.
    browser.go(f"{host}/start?key=jobs/one-worker&by=text")
    browser.until("its text", "document.getElementById('text')?.value.includes('workers = 1')")
    browser.run(
        "const area = document.getElementById('text');"
        "area.value = 'name = \"eight-workers\"\\n' + area.value.replace('workers = 1', 'workers = 8');"
        "area.dispatchEvent(new Event('input', { bubbles: true }))"
    )
    browser.until("a copy without a fault", "document.getElementById('start')?.disabled === false")
    browser.picture(out / "4-copy.png")
    browser.click("#start")
    browser.until("its page", "location.pathname === '/run' && location.search.includes('eight')")
    wait_for(work, "eight-workers")
    browser.go(f"{host}/compare?keys=jobs/one-worker//jobs/eight-workers")
    browser.until("both", "document.querySelector('main canvas, main table')")
    time.sleep(3)
    browser.picture(out / "5-compare.png")


if __name__ == "__main__":
    main()

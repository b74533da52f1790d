"""Builds that are ended from outside: what was done is safe, and nothing stays behind."""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.data import build_worker
from tests.data.conftest import make_texts, whole, write_lines
from toeplix.data import Recipe, Store, build

pytestmark = pytest.mark.slow


@pytest.fixture
def context():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["toeplix.data"])
    return context


def test_killed_at_any_moment_the_store_comes_out_the_same(recipe, store, tmp_path, context):
    """The moments are random; every stage is hit, from learning the tokenizer to the last file."""
    folder, moments, reached = tmp_path / "new", random.Random(0), []
    for attempt in range(60):
        process = context.Process(target=build_worker.slow_build, args=(recipe, folder))
        process.start()
        process.join(0.05 + moments.random() * (0.1 + 0.05 * attempt))
        process.kill()
        process.join()
        if process.exitcode == 0:
            break
        if (folder / "progress.json").exists():
            reached.append(json.loads((folder / "progress.json").read_text())["read"])
            with pytest.raises(ValueError, match=r"is unfinished: run the same .*again"):
                Store.open(folder)
    assert process.exitcode == 0, "it was never left alone for long enough"
    assert len(set(reached)) >= 3, "it was killed at several places"
    assert reached == sorted(reached), "nothing that was done is lost"
    assert whole(folder) == whole(store.directory)


def test_a_full_disk_is_told_and_costs_nothing_that_was_done(recipe, store, tmp_path, context):
    room = os.path.getsize(store.directory / "train.bin") // 2
    ours, theirs = context.Pipe(duplex=False)
    arguments = (recipe, tmp_path, room, theirs)
    process = context.Process(target=build_worker.build_with_little_room, args=arguments)
    process.start()
    theirs.close()
    message = ours.recv()
    process.join()
    safe = json.loads((tmp_path / "progress.json").read_text())["read"]
    assert 100 < safe < 300
    assert f"no room left for {tmp_path} (File too large): {safe} documents are safe" in message
    seen = []
    build(recipe, tmp_path, processes=1, report=seen.append)
    assert seen[0].documents > safe
    assert whole(tmp_path) == whole(store.directory)


COMMAND = f"""
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
from toeplix.cli.main import main
from toeplix.data import building
building.ONE_PROCESS_CHARACTERS, building.BATCH_CHARACTERS = 0, {build_worker.SMALL}
append = building.Growing.append
def slowly(*arguments):
    time.sleep(0.05)  # time to be hit
    append(*arguments)
building.Growing.append = slowly
sys.argv = ["toeplix", "data", "build", *sys.argv[1:]]
main()
"""


def descendants(pid):
    """Processes below `pid`; where the system does not tell, none."""
    found = []
    for file in os.scandir("/proc") if sys.platform.startswith("linux") else ():
        if file.name.isdigit():
            try:
                with open(f"/proc/{file.name}/stat") as stat:
                    parent = int(stat.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == pid:
                found += [int(file.name), *descendants(int(file.name))]
    return found


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def test_interrupted_and_killed_with_its_processes(tmp_path):
    """Ctrl-C says how to go on; after a kill no process of the pool stays behind."""
    source = write_lines(tmp_path / "texts.jsonl", make_texts(200) * 10)
    options = [source, "--vocab", "300", "--processes", "2", "--out", str(tmp_path / "out")]
    progress = tmp_path / "out" / "progress.json"

    def start():
        command = [sys.executable, "-c", COMMAND, *options]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)

    for sign, status in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        process = start()
        wait_until(
            lambda p=process: (
                p.poll() is not None or (progress.exists() and len(descendants(p.pid)) >= 3)
            )
        )
        assert process.poll() is None, "it was done before it could be hit"
        below = descendants(process.pid)
        if sign == signal.SIGINT:
            os.killpg(process.pid, sign)  # as a terminal does: to all of them
        else:
            process.kill()
        told = process.communicate(timeout=60)[1]  # a process left behind holds the pipe
        assert process.returncode == status, told
        if sign == signal.SIGINT:
            assert "Traceback" not in told
            assert told.endswith("toeplix: stopped; run the same command again to go on\n")
        wait_until(lambda pids=below: not any(map(alive, pids)))
    recipe = Recipe(sources=(source,), vocab=300)
    build(recipe, tmp_path / "out", processes=1)
    build(recipe, tmp_path / "other", processes=1)
    assert whole(tmp_path / "out") == whole(tmp_path / "other")


AT_THE_WRONG_MOMENT = """
from multiprocessing.process import BaseProcess
start = BaseProcess.start
def interrupted(self):
    start(self)  # the pool knows nothing of it yet
    signal.raise_signal(signal.SIGINT)
BaseProcess.start = interrupted
sys.argv ="""


def test_interrupted_while_its_processes_start(tmp_path):
    source = write_lines(tmp_path / "texts.jsonl", make_texts(200))
    options = [source, "--vocab", "300", "--processes", "2", "--out", str(tmp_path / "out")]
    command = COMMAND.replace("sys.argv =", AT_THE_WRONG_MOMENT)
    done = subprocess.run(
        [sys.executable, "-c", command, *options], stderr=subprocess.PIPE, text=True, timeout=120
    )
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.endswith("toeplix: stopped; run the same command again to go on\n")


@pytest.mark.usefixtures("pooled")
def test_a_lost_worker_is_told(recipe, tmp_path):
    def end_a_worker(progress):
        for process in multiprocessing.active_children() if progress.documents > 100 else ():
            process.kill()

    with pytest.raises(OSError, match=r"ended from outside.*run the same command again"):
        build(recipe, tmp_path, processes=2, report=end_a_worker)
    build(recipe, tmp_path, processes=1)

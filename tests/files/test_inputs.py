"""Only regular files are read: a named pipe would be waited for without end."""

import os
import socket

import pytest

from toeplix.data.sources import resolve
from toeplix.files import DamagedFile, open_input, read_json, reading, sha256
from toeplix.files.tensors import read_file
from toeplix.ops import dispatch
from toeplix.training import logs


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.mark.parametrize("read", [read_json, sha256, open_input, read_file])
def test_a_pipe_is_rejected_by_name(read, pipe):
    with pytest.raises(DamagedFile, match="pipe is a named pipe: only regular files are read"):
        read(pipe)


def test_a_pipe_is_rejected_before_it_is_interpreted(pipe):
    with pytest.raises(DamagedFile, match="named pipe"), reading(pipe):
        raise AssertionError("nothing may be read")


def test_devices_and_sockets(tmp_path, monkeypatch):
    with pytest.raises(DamagedFile, match="/dev/null is a device"):
        read_json(type(tmp_path)("/dev/null"))
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
    with pytest.raises(DamagedFile, match="is a socket"):
        read_json(tmp_path / "socket")


def test_a_pipe_among_the_files_of_a_run_and_the_sources(tmp_path):
    for name in (logs.METRICS, "texts.jsonl"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(DamagedFile, match="named pipe"):
        logs.read(tmp_path)
    with pytest.raises(FileNotFoundError, match="is no file or directory"):
        resolve([str(tmp_path / "texts.jsonl")])


def test_a_pipe_in_place_of_the_operators_rule(pipe):
    with pytest.raises(ValueError, match="no regular file"):
        dispatch.read(pipe)


def test_what_is_missing_stays_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        open_input(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError):
        open_input(tmp_path)

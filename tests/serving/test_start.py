"""What keeps `toeplix serve` from starting: one line on standard error, exit status 2, no traceback."""

import json
import os
import shutil
import socket

import pytest

from tests.serving.test_command import refused
from toeplix.serving.service import named

pytestmark = pytest.mark.slow

DEEP = "[" * 100_000


@pytest.fixture(autouse=True)
def unstarted(monkeypatch):
    """A server that starts after all fails the test, and does not run for ever."""

    def started(*given, **how):
        raise AssertionError("it started")

    monkeypatch.delenv("TOEPLIX_API_KEY", raising=False)
    monkeypatch.setattr("uvicorn.Server.run", started)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--drain", "inf", "inf is not a finite number of 64 bits"),
        ("--drain", "nan", "drain"),
        ("--drain", "-1", "drain"),
        ("--drain", "1e300", "drain=1e+300 must be in"),
        ("--timeout", "inf", "inf is not a finite number of 64 bits"),
        ("--timeout", "nan", "timeout"),
        ("--timeout", "1e300", "timeout=1e+300 must be in"),
        ("--max-batch", "0", "max-batch"),
        ("--max-batch", 10**30, "a finite number of 64 bits"),
        ("--max-batch", 10**18, "max_batch=1000000000000000000 must be in"),
        ("--max-waiting", 10**30, "a finite number of 64 bits"),
        ("--max-waiting", 10**18, "max_waiting=1000000000000000000 must be in"),
        ("--max-tokens", 10**12, "max_tokens=1000000000000 must be in"),
        ("--max-prompt", 10**30, "a finite number of 64 bits"),
        ("--max-prompt", 10**18, "max_prompt=1000000000000000000 must be in"),
        ("--max-body", 10**30, "a finite number of 64 bits"),
        ("--max-body", 10**18, "max_body=1000000000000000000 must be in"),
        ("--threads", 10**30, "threads"),
        ("--port", "-1", "--port"),
        ("--port", "65536", "--port"),
        ("--port", "x", "--port"),
        ("--name", "", "--name"),
        ("--name", "a\nb", "--name"),
        ("--name", os.fsdecode(b"\xff"), "--name"),
        ("--name", "\u202e", "--name"),
        ("--host", os.fsdecode(b"\xff\xfe"), "host"),
        ("--host", "no.such.host.invalid", "host"),
        ("--host", "", "host"),
        ("--host", "a" * 300, "host"),
        ("--host", "127.0.0.1:80", "host"),
        ("--host", "203.0.113.7", "203.0.113.7"),
    ],
)
def test_options(checkpoint, monkeypatch, capsys, tmp_path, option, value, words):
    (tmp_path / "key").write_text("sesame")  # so that other hosts are tried at all
    key = ("--key-file", tmp_path / "key") if option == "--host" else ()
    said = refused(monkeypatch, capsys, checkpoint, "--port", 0, *key, option, value)
    assert words in said


def test_a_port_in_use_is_one_line(checkpoint, monkeypatch, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused(monkeypatch, capsys, checkpoint, "--port", port)
    assert f"127.0.0.1:{port} cannot be had" in said


@pytest.mark.parametrize("key", [b"\xff\xfe", "clé".encode(), b"a b", b"a\nb", b"x" * 10_000, b""])
def test_keys(checkpoint, tmp_path, monkeypatch, capsys, key):
    (tmp_path / "key").write_bytes(key)
    said = refused(monkeypatch, capsys, checkpoint, "--key-file", tmp_path / "key")
    assert "holds no key" in said


def test_a_key_file_that_is_none(checkpoint, tmp_path, monkeypatch, capsys):
    several = {tmp_path / "nope": "there is no such file", tmp_path: "a directory; name a file"}
    for file, what in several.items():
        said = refused(monkeypatch, capsys, checkpoint, "--key-file", file)
        assert f"--key-file {file}: {what}" in said


def test_a_key_without_end(checkpoint, monkeypatch, capsys):
    assert "holds no key" in refused(monkeypatch, capsys, checkpoint, "--key-file", "/dev/zero")


END = '"eos_token": "<|eos|>"'
DAMAGED = {
    "tokenizer_config.json": [
        *("", "{", "[]", "null", "5", DEEP, "\udcff"),
        *('{"eos_token": 5}', '{"eos_token": []}', '{"eos_token": "no"}'),
        *('{"eos_token": "\\ud800"}', '{"eos_token": {"content": {}}}'),
        *(f'{{"bos_token": [1], {END}}}', f'{{"chat_template": 5, {END}}}'),
        f'{{"chat_template": [5], {END}}}',
    ],
    "generation_config.json": [
        *("", "{", "[]", "null", DEEP, "\udcff"),
        *('{"eos_token_id": "x"}', '{"eos_token_id": [null]}', '{"eos_token_id": -1}'),
        *('{"eos_token_id": 1000000000000}', '{"eos_token_id": 1.5}', '{"eos_token_id": true}'),
        '{"eos_token_id": [[1]]}',
    ],
    "chat_template.jinja": [
        *("{% for %}", "{{", "\udcff", "{{ 1 / 0 }}", "{{ nothing.at.all }}", "{{ [1] + 'x' }}"),
        *("{{ messages[7].role.x }}", "{{ 5 | nofilter }}", "{% include 'x' %}", "{{ 'x' * 'y' }}"),
        "{% for i in range(1000000000) %}{% endfor %}",
    ],
    "tokenizer.json": ["", "{", "[]", "null", DEEP, "\udcff", "{}"],
    "model.safetensors": ["", "\0" * 8, "\udcff" * 100],
}


@pytest.mark.parametrize(
    ("file", "text"), [(file, text) for file, texts in DAMAGED.items() for text in texts]
)
def test_damaged_files(checkpoint, tmp_path, monkeypatch, capsys, file, text):
    folder = tmp_path / "model"
    shutil.copytree(checkpoint, folder)
    (folder / file).write_bytes(text.encode(errors="surrogateescape"))
    said = refused(monkeypatch, capsys, folder, "--port", 0)
    assert len(said) < 1000
    assert str(folder) in said


def test_other_fields_of_these_files_are_left_alone(checkpoint, tmp_path):
    from toeplix.serving.service import open_service

    folder = tmp_path / "model"
    shutil.copytree(checkpoint, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    template = (
        "{% if messages[0].role != 'system' %}{{ raise_exception('system first') }}{% endif %}"
    )
    config |= {"chat_template": [{"name": "default", "template": template}], "other": {"x": [1]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text('{"eos_token_id": [3, 4], "top_p": 0.9}')
    service = open_service(folder)
    assert service.ends == {service.tokenizer.end, 3, 4}
    service.close()


def test_a_directory_that_is_not_utf8_has_a_name(tmp_path):
    folder = tmp_path / os.fsdecode(b"na\xefve")
    assert named(folder) == "na\\udcefve"

"""The OpenAPI document is true: schemathesis finds no answer that it does not describe.

All phases (examples, coverage, fuzzing, stateful) and all checks: no 5xx, no undocumented status, content
type or body, nothing taken that the document forbids or rejected that it allows, no way around the key.
"""

import json
import os
import subprocess
import sys

import pytest

from tests.serving.raw import exchange
from toeplix.serving.limits import Limits
from toeplix.serving.server import running
from toeplix.serving.service import open_service

pytestmark = pytest.mark.slow

KEY = "Authorization: Bearer sesame"
EXAMPLES = 8  # of an operation, when fuzzing


@pytest.fixture(scope="module")
def locked(checkpoint):
    service = open_service(checkpoint, "tiny", Limits(max_batch=16, max_tokens=8))
    with running(service, key="sesame") as server:
        yield server


def test_schemathesis_finds_nothing(locked, tmp_path):
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{locked.url}/openapi.json"]
    command += ["--checks", "all", "--phases", "examples,coverage,fuzzing,stateful", "-H", KEY]
    command += ["--max-examples", str(EXAMPLES), "--seed", "1", "--no-color"]
    found = subprocess.run(
        command,
        cwd=tmp_path,  # it keeps what it found last
        env=os.environ | {"PYTHONWARNINGS": "default"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    for phase in ("Examples", "Coverage", "Fuzzing", "Stateful"):
        assert f"✅ {phase}" in found.stdout, found.stdout
    assert locked.service.engine.counts.failures == 0


def document(server, *headers):
    lines = ["GET /openapi.json HTTP/1.1", "Host: localhost", *headers]
    status, _, body = exchange(server, "\r\n".join([*lines, "", ""]).encode())
    assert status == 200
    return json.loads(body)


def test_the_document_tells_limits_key_and_content_types(locked, server):
    found, open_ = document(locked, KEY), document(server)
    post = found["paths"]["/v1/completions"]["post"]
    assert set(post["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}
    for status in ["400", "401", "403", "404", "408", "413", "415", "429", "500", "503", "504"]:
        assert status in post["responses"]
    assert list(found["paths"]["/metrics"]["get"]["responses"]["200"]["content"]) == ["text/plain"]
    assert post["security"] == [{"key": []}]
    assert "security" not in found["paths"]["/health"]["get"]
    assert "security" not in open_["paths"]["/v1/completions"]["post"]
    fields = found["components"]["schemas"]["Completion"]["properties"]
    assert fields["model"]["enum"] == ["tiny"]
    assert fields["max_tokens"]["anyOf"][0]["maximum"] == 8
    assert "422" not in post["responses"], "errors of validation are 400, as with OpenAI"

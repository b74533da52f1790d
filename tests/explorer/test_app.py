"""The server as a browser meets it, and as somebody does who should not."""

import http.client
import json
import urllib.parse

import pytest
import torch

from toeplix import load
from toeplix.experiments.engine.claims import CLAIMS
from toeplix.explorer.cache import ModelCache
from toeplix.explorer.contributions import contributions
from toeplix.explorer.guard import MAX_BODY


def call(served, path, body=None, method=None, **headers):
    """Status, headers, and the answer: JSON where it is."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(served).netloc, timeout=60)
    data = None if body is None else json.dumps(body) if isinstance(body, dict) else body
    kind = {} if body is None else {"content-type": "application/json"}
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method or ("GET" if body is None else "POST"), path, data, kind | names)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    if answer.headers["content-type"] == "application/json":
        return answer.status, answer.headers, json.loads(text)
    return answer.status, answer.headers, text


def test_the_page_may_load_only_itself(served):
    for path in ("/", "/page/main.js", "/page/style.css", "/page/icon.svg", "/api/list"):
        status, headers, _ = call(served, path)
        assert status == 200
        rules = headers["content-security-policy"]
        assert rules.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in rules
        assert headers["x-content-type-options"] == "nosniff"


def test_runs_are_listed(served):
    _, _, places = call(served, "/api/list")
    assert {run["name"]: run["state"] for run in places["runs"]}["first"] == "finished"
    _, _, rows = call(served, "/api/metrics?name=deeper/second")
    _, _, none = call(served, f"/api/metrics?name=deeper/second&cursor={rows['cursor']}")
    assert rows["rows"]
    assert none["rows"] == []
    _, _, told = call(served, "/api/settings?name=first")
    assert told["settings"]["steps"] == 24
    assert told["sample"]


def test_text_comes_line_by_line(served):
    wish = {"model": "first", "prompt": "one", "new": 4, "seed": 3}
    status, headers, text = call(served, "/api/generate", wish)
    events = [json.loads(line) for line in text.splitlines()]
    assert (status, headers["content-type"]) == (200, "application/x-ndjson")
    assert 1 <= sum(event["kind"] == "model" for event in events) <= 4


def test_contributions_are_the_library_s(served, trained):
    _, _, found = call(
        served,
        "/api/contributions",
        {"model": "first", "text": "7: one two", "linearization": "at_text"},
    )
    model, tokenizer = ModelCache().loaded(trained / "first" / "model")
    tokens = torch.tensor([tokenizer.start, *tokenizer.encode("7: one two")])
    expected = contributions(model, tokens)
    assert "".join(found["tokens"][1:]) == "7: one two"
    for place, row in enumerate(found["contributions"]):
        assert row == pytest.approx(expected[place, : place + 1].tolist(), rel=1e-3)


def test_weights_are_the_models(served, trained):
    _, _, tree = call(served, "/api/weights?name=first")
    model, _ = ModelCache().loaded(trained / "first" / "model")
    stored = load(trained / "first" / "model").state_dict()
    assert {row["name"]: tuple(row["shape"]) for row in tree["tensors"]} == {
        name: tuple(value.shape) for name, value in stored.items()
    }
    assert tree["stored"] == sum(value.numel() for value in stored.values())
    assert tree["parameters"] == sum(value.numel() for value in model.parameters())
    _, _, found = call(served, "/api/histograms?name=first&part=blocks.1")
    names = [each["name"] for each in found["histograms"]]
    assert names == [row["name"] for row in tree["tensors"] if row["name"].startswith("blocks.1.")]
    for each in found["histograms"]:
        values = stored[each["name"]].double()
        assert sum(each["counts"]) == values.numel()
        assert each["mean"] == pytest.approx(float(values.mean()), rel=1e-4, abs=1e-8)


def test_the_overview_has_every_filter(served):
    _, _, found = call(served, "/api/overview?name=first")
    _, _, filters = call(served, "/api/filters?name=first")
    assert [row["name"] for row in found["filters"]] == [row["name"] for row in filters["rows"]]
    for row in found["filters"]:
        query = f"name=first&layer={row['layer']}&head={row['head']}"
        taps = call(served, f"/api/filter?{query}")[2]["taps"]
        assert min(row["low"]) == pytest.approx(min(taps), rel=1e-4)
        assert max(row["high"]) == pytest.approx(max(taps), rel=1e-4)
        assert len(row["low"]) * row["lags_per_bin"] >= len(taps)


def test_claims_without_results_say_so(served):
    _, _, found = call(served, "/api/claims")
    assert found["present"] is False
    assert found["note"].startswith("No results here")
    assert len(found["claims"]) == sum(len(claim.parts) for claim in CLAIMS.values())
    assert not any(claim["ours"] for claim in found["claims"])


REFUSED = {
    "another host": (421, "/", None, {"host": "evil.example"}),
    "another host with a port": (421, "/api/list", None, {"host": "evil.example:80"}),
    "a host that looks like a number": (421, "/", None, {"host": "127.0.0.1.evil.example"}),
    "another page": (403, "/api/generate", {"model": "first"}, {"origin": "http://evil.example"}),
    "no origin at all, it says": (403, "/api/generate", {"model": "first"}, {"origin": "null"}),
    "too much": (413, "/api/generate", "x" * (MAX_BODY + 1), {}),
    "no JSON": (422, "/api/generate", "{", {}),
    "no such model": (404, "/api/generate", {"model": "nobody"}, {}),
    "a path": (404, "/api/settings?name=../../../etc", None, {}),
    "an absolute path": (404, "/api/filters?name=/etc", None, {}),
    "a file beside the page": (404, "/page/..%2fapp.py", None, {}),
    "a figure elsewhere": (404, "/figures/..%2f..%2fpyproject.toml", None, {}),
    "bad sampling": (400, "/api/generate", {"model": "first", "top_p": 0.0}, {}),
    "too many tokens": (422, "/api/generate", {"model": "first", "new": 10**6}, {}),
    "unknown way": (
        400,
        "/api/contributions",
        {"model": "first", "text": "x", "linearization": "all"},
        {},
    ),
    "no tokenizer": (400, "/api/generate", {"model": "deeper/second, step-24"}, {}),
    "no such model of weights": (404, "/api/weights?name=..%2f..%2fetc", None, {}),
    "no such module": (404, "/api/histograms?name=first&part=..%2f..%2fetc%2fpasswd", None, {}),
    "an empty module": (404, "/api/histograms?name=first&part=", None, {}),
    "no filters to look over": (404, "/api/overview?name=nobody", None, {}),
    "no lookup blocks": (400, "/api/lookup", {"model": "first", "text": "x", "block": 0}, {}),
    "a block below none": (422, "/api/lookup", {"model": "first", "text": "x", "block": -2}, {}),
    "a block of text": (422, "/api/lookup", {"model": "first", "text": "x", "block": "y"}, {}),
    "a text that is too long": (422, "/api/lookup", {"model": "first", "text": "x" * 20_001}, {}),
    "no tokenizer to look up": (
        400,
        "/api/lookup",
        {"model": "deeper/second, step-24", "text": ""},
        {},
    ),
    "no such layer": (404, "/api/filter?name=first&layer=blocks.9", None, {}),
    "a number that is none": (422, "/api/filter?name=first&layer=x&head=y", None, {}),
    "nothing there": (404, "/admin", None, {}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_and_how(served, case):
    status, path, body, headers = REFUSED[case]
    found, _, answer = call(served, path, body, **headers)
    assert found == status
    assert answer["error"]
    assert "Traceback" not in answer["error"]


def test_a_request_without_a_length(served):
    status, _, answer = call(served, "/api/generate", iter([b"{}"]), transfer_encoding="chunked")
    assert (status, answer["error"]) == (411, "the length of the request is missing")


def test_a_reader_who_leaves_stops_the_writing(served):
    """Otherwise the fifth of these would find all writers busy."""
    netloc = urllib.parse.urlsplit(served).netloc
    wish = json.dumps({"model": "first", "new": 2000, "temperature": 2.0, "top_p": 1.0})
    for _ in range(12):
        connection = http.client.HTTPConnection(netloc, timeout=60)
        connection.request("POST", "/api/generate", wish, {"content-type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.readline()
        answer.close()
        connection.close()

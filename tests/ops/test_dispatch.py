"""The rule is data: complete as it ships, replaceable by a file, and a bad file is told."""

import json

import pytest

from toeplix.ops import dispatch
from toeplix.ops.dispatch import AUTO, AUTO_EXACT, RULE, check, choose, current_rule


@pytest.fixture
def rule_file(tmp_path, monkeypatch):
    file = tmp_path / "paths.json"
    monkeypatch.setenv("TOEPLIX_RULE", str(file))
    current_rule.cache_clear()
    yield file
    current_rule.cache_clear()


def test_the_built_in_rule_is_complete():
    check(RULE)
    for device in (*RULE, "some-other-device"):
        for mode in (AUTO, AUTO_EXACT):
            for time in (1, 128, 10**7):
                for columns, channels in ((1, 1), (10**6, 1), (10**6, 10**6)):
                    sizes = (time, columns, channels)
                    taken = []
                    choose(
                        mode, device, *sizes, usable=lambda path, found=taken: found.append(path)
                    )
                    assert taken, "a band and a path fit"


def test_short_is_blocked_and_long_is_near_linear():
    assert choose(AUTO, "cpu", 128, 4096, 64) == "blocked"
    assert choose(AUTO, "cpu", 16384, 4096, 64) == "fft"
    assert choose(AUTO_EXACT, "cpu", 16384, 4096, 64) == "halving"


def test_filters_per_channel_are_products_of_their_own():
    """A matrix per channel that multiplies one column of each sequence is slower than the FFT."""
    assert choose(AUTO, "cpu", 128, 16, 1) == choose(AUTO, "cpu", 128, 4096, 1) == "fft"
    assert choose(AUTO, "cpu", 128, 16, 4) == "blocked"
    assert choose(AUTO_EXACT, "cpu", 128, 16, 1) == "blocked"


def test_a_band_of_few_channels_cannot_be_the_last():
    few = [{"columns": None, "channels": 1, "paths": [(None, "blocked")]}]
    with pytest.raises(ValueError, match="the last band of cpu/auto must have"):
        check({"cpu": {AUTO: few, AUTO_EXACT: few}})
    whole = [*few, few[0] | {"channels": None}]
    check({"cpu": {AUTO: whole, AUTO_EXACT: whole}})
    never = [few[0] | {"channels": 0}]
    with pytest.raises(ValueError, match="the last band of cpu/auto must have"):
        check({"cpu": {AUTO: never, AUTO_EXACT: never}})


def test_a_users_file_replaces_its_device(rule_file):
    everything = [{"columns": None, "paths": [[None, "dense"]]}]
    rule_file.write_text(json.dumps({"rule": {"cpu": {AUTO: everything, AUTO_EXACT: everything}}}))
    assert choose(AUTO, "cpu", 16384, 64, 64) == "dense"
    assert choose(AUTO, "cuda", 16384, 64, 64) == "fft"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}",
        '{"rule": []}',
        '{"rule": null}',
        "[" * 10**5,
        '{"rule": {"cpu": {"auto": [{}]}}}',
        json.dumps({"rule": {"cpu": {AUTO: [{"columns": None, "paths": [[None, []]]}]}}}),
        '{"rule": "\\ud800"}',
        '{"rule": {"cpu": {"auto": []}}}',
        json.dumps({"rule": {"cpu": {AUTO: [{"columns": None, "paths": [[None, "magic"]]}]}}}),
        json.dumps({"rule": {"cpu": {AUTO: [{"columns": None, "paths": [[9, "fft"]]}]}}}),
    ],
)
def test_a_damaged_file_is_named_and_not_followed(rule_file, text):
    rule_file.write_text(text)
    with pytest.warns(UserWarning, match=r"ignoring the operator rule in .*paths\.json"):
        assert choose(AUTO, "cpu", 16384, 64, 64) == "fft"


@pytest.mark.parametrize(
    "wrong",
    [
        {"columns": "9"},
        {"columns": 0},
        {"channels": "1"},
        {"channels": True},
        {"channels": -1},
        {"channel": 1},
        {"paths": [[9, "fft"]]},
        {"paths": [["9", "blocked"], [None, "fft"]]},
    ],
)
def test_a_band_that_says_nonsense_is_rejected(wrong):
    whole = {"columns": None, "paths": [[None, "blocked"]]}
    check({"cpu": {AUTO: [whole, whole], AUTO_EXACT: [whole]}})
    with pytest.raises(ValueError, match="cpu/auto"):
        check({"cpu": {AUTO: [whole | wrong, whole], AUTO_EXACT: [whole]}})


def test_an_inexact_path_cannot_serve_exact():
    band = [{"columns": None, "paths": [(None, "fft")]}]
    with pytest.raises(ValueError, match="'fft' cannot serve cpu/auto-exact"):
        check({"cpu": {AUTO: band, AUTO_EXACT: band}})


def test_the_file_lives_in_the_users_configuration(monkeypatch, tmp_path):
    monkeypatch.delenv("TOEPLIX_RULE")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert dispatch.rule_file() == tmp_path / "toeplix" / "paths.json"

"""Host and Origin headers: names that cannot be rebound, and pages of other sites."""

import pytest

from toeplix.serving.host_guard import LOOPBACK, is_allowed_host, is_same_origin


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("localhost", True),
        ("LOCALHOST:8421", True),
        ("127.0.0.1:8421", True),
        ("[::1]:8421", True),
        ("192.168.1.4", True),
        ("laptop.local:80", True),
        ("", False),
        ("laptop.local.evil.example", False),
        ("[evil.example]", False),
        ("[::1].evil.example", False),
        ("localhost.evil.example:8421", False),
    ],
)
def test_names_that_cannot_be_rebound(host, allowed):
    assert is_allowed_host(host, {"localhost", "laptop.local"}, any_address=True) is allowed


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("localhost:8000", True),
        ("127.0.0.1", True),
        ("[::1]", True),
        ("[::1]:8000", True),
        ("192.168.1.4:8000", False),
        ("evil.example:8000", False),
    ],
)
def test_a_server_on_loopback_accepts_its_own_names_only(host, allowed):
    assert is_allowed_host(host, LOOPBACK) is allowed


@pytest.mark.parametrize(
    ("origin", "same"),
    [
        (None, True),
        ("http://localhost:8421", True),
        ("https://localhost:8421", False),
        ("http://localhost", False),
        ("http://evil.example", False),
        ("null", False),
    ],
)
def test_pages_of_other_origins(origin, same):
    assert is_same_origin(origin, "http", "localhost:8421") is same

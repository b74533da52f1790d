"""Which requests come from this machine's own user: the Host and Origin headers.

A page elsewhere on the web can make a browser send requests to a server on this machine: under a host
name of its own that it lets point to 127.0.0.1 (DNS rebinding), or as a form from its own origin. The
first is recognised by the Host header, the second by the Origin header. The API server and the explorer
both check their requests here.
"""

import ipaddress
from collections.abc import Collection

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def host_name(header: str) -> str:
    """Return the lower-case host of a Host header, without port and brackets; "" if it is malformed."""
    name = header.lower()
    if name.startswith("["):
        name, _, port = name[1:].partition("]")
        return name if not port or port.startswith(":") else ""
    return name.partition(":")[0] if name.count(":") == 1 else name


def is_allowed_host(header: str, names: Collection[str], *, any_address: bool = False) -> bool:
    """Return whether a Host header names this server.

    Args:
        header: the value of the header, with or without a port.
        names: host names and addresses of the server.
        any_address: also accept every IP address, because an address cannot be rebound.
    """
    name = host_name(header)
    if name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return any_address


def is_same_origin(origin: str | None, scheme: str, host: str) -> bool:
    """Return whether a request came from a page of the host itself, or from no page at all."""
    return origin is None or origin == f"{scheme}://{host}"

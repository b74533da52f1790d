"""A socket to listen on, had before anything slow is done; what is in the way is said in one line."""

import socket

from toeplix.files import printable


def listen(host: str, port: int) -> socket.socket:
    """Listening at a name or number of this machine; port 0 is any that is free.

    Raises:
        OSError: the address is not one of this machine, or the port is taken.
    """
    shown = printable(host)[:80]
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as problem:
        raise OSError(f"host {shown!r} is not known: {problem.strerror}") from problem
    except (UnicodeError, ValueError) as problem:  # too long, or not UTF-8
        raise OSError(f"host {shown!r} is no name of a host") from problem
    family, kind, number, _, address = found[0]
    listening = socket.socket(family, kind, number)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
        listening.listen()  # whoever reads the address may come at once, and waits
    except OSError as problem:
        listening.close()
        raise OSError(problem.strerror or str(problem)) from problem
    return listening

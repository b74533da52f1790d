"""Open a listening socket before anything slow is done, with errors of one line."""

import socket

from toeplix.files import printable


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at a host name or address of this machine; port 0: any free port.

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
        listening.listen()  # clients may connect from now on, and wait
    except OSError as problem:
        listening.close()
        raise OSError(problem.strerror or str(problem)) from problem
    return listening

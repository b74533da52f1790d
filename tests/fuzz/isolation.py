"""A mount namespace in which nothing but a scratch directory can be written, and no network but loopback.

`enter` starts the program again inside, through util-linux's `unshare`: as root directly, else in a user
namespace. Inside, every mount is made read-only, the scratch directory is a tmpfs of bounded size, and
the directory for reproducers stays writable. Where that is not possible, destructive kinds are refused.
"""

import contextlib
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

INSIDE = "TOEPLIX_FUZZ_INSIDE"  # the scratch directory, once we are there
SCRATCH_SIZE = "3g"


class NotPossible(RuntimeError):
    """This machine does not let us make namespaces."""


def scratch() -> Path | None:
    """The writable directory, if this process is inside."""
    found = os.environ.get(INSIDE)
    return Path(found) if found else None


def enter(arguments: list[str], out: Path) -> int:
    """Run `python -m tests.fuzz` with these arguments inside; its exit status."""
    place = Path(tempfile.mkdtemp(prefix="toeplix-fuzz-"))
    out.mkdir(parents=True, exist_ok=True)
    inside = [sys.executable, "-m", "tests.fuzz", *arguments]
    own = _environment(place) | {
        INSIDE: str(place),
        "TOEPLIX_FUZZ_OUT": str(out.resolve()),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")]),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    left = {name: value for name, value in os.environ.items() if not name.startswith("TOEPLIX_")}
    try:
        return subprocess.run([*unshare(), *inside], env=left | own, check=False).returncode
    finally:
        with contextlib.suppress(OSError):
            place.rmdir()  # empty out here: the tmpfs was inside


def _environment(place: Path) -> dict[str, str]:
    """Where programs look for room, all of it in the scratch directory; no colours, no network."""
    return {
        "HOME": str(place / "home"),
        "TMPDIR": str(place / "tmp"),
        "TOEPLIX_CACHE": str(place / "cache" / "toeplix"),
        "TOEPLIX_RULE": str(place / "nowhere" / "paths.json"),
        "HF_HOME": str(place / "cache" / "hf"),
        "MPLCONFIGDIR": str(place / "cache" / "matplotlib"),
        "HF_HUB_OFFLINE": "1",
        "TQDM_DISABLE": "1",
        "NO_COLOR": "1",
        "COLUMNS": "120",
    }


def unshare() -> list[str]:
    """The command that makes namespaces here, tried before it is relied on."""
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        raise NotPossible("unshare and mount (util-linux) are not installed")
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    for net in (["--net"], []):
        command = ["unshare", *user, "--mount", *net]
        probe = "mount --make-rprivate / && mount -t tmpfs none /dev/shm"
        tried = subprocess.run([*command, "sh", "-c", probe], capture_output=True, check=False)
        if tried.returncode == 0:
            return command
    reason = " ".join(tried.stderr.decode(errors="replace").split())
    raise NotPossible(f"no mount namespace can be made here ({reason})")


def seal(place: Path, out: Path) -> None:
    """Inside: make everything read-only but the scratch directory and the one for reproducers."""
    _mount("--make-rprivate", "/")
    _mount("-t", "tmpfs", "-o", f"size={SCRATCH_SIZE},mode=700", "none", str(place))
    for name in ("home", "tmp", "cache"):
        (place / name).mkdir()
    _mount("--bind", str(out), str(out))
    for point, options in _mounts():
        if point in (str(place), str(out)):
            continue
        kept = [each for each in options if each in ("nosuid", "nodev", "noexec")]
        with contextlib.suppress(subprocess.CalledProcessError):  # hidden below another mount
            _mount("-o", ",".join(["remount", "bind", "ro", *kept]), point)
    # semaphores of multiprocessing lie there
    _mount("-t", "tmpfs", "-o", "size=256m", "none", "/dev/shm")
    _loopback()
    for forbidden in (Path.cwd(), place.parent):
        try:
            with tempfile.NamedTemporaryFile(dir=forbidden):
                pass
        except OSError:
            continue
        if out not in (forbidden, *forbidden.parents):
            raise NotPossible(f"{forbidden} can be written after all")


def _mounts() -> list[tuple[str, list[str]]]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    fields = (line.split() for line in lines)
    return [(each[4].encode().decode("unicode_escape"), each[5].split(",")) for each in fields]


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


def _loopback() -> None:
    """Up, where the network namespace is our own; there it begins down."""
    up, get, put = 0x1, 0x8913, 0x8914  # IFF_UP, SIOCGIFFLAGS, SIOCSIFFLAGS
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle, contextlib.suppress(OSError):
        found = fcntl.ioctl(handle, get, struct.pack("16sH14s", b"lo", 0, b""))
        flags = struct.unpack("16sH14s", found)[1]
        fcntl.ioctl(handle, put, struct.pack("16sH14s", b"lo", flags | up, b""))

"""Become another program, tied to the parent's life and, for PostgreSQL, without being root.

Run as a script: ``launch.py STOP_SIGNAL PARENT_PID IDENTITY REACH COMMAND…``. It replaces itself by
COMMAND, so the process keeps its id. IDENTITY is ``same``, ``namespace:UID`` or ``drop:UID:GID``;
REACH is a folder that COMMAND must be able to enter ("" for none). It exits with EXIT_UNUSABLE
where the identity cannot be taken or the folder cannot be entered.

Doing this here and not in a ``preexec_fn`` keeps Python code out of the time between fork and exec.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

EXIT_UNUSABLE = 75  # EX_TEMPFAIL: try another identity

_PR_SET_PDEATHSIG = 1
_PR_SET_SECUREBITS = 28
_SECBIT_NO_SETUID_FIXUP = 4
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CLONE_NEWUSER = 0x10000000
_CAPABILITY_VERSION = 0x20080522
# Entering folders that belong to somebody else. Docker grants only the second of them.
_CAP_DAC_READ_SEARCH = 2
_CAP_DAC_OVERRIDE = 1

_libc = ctypes.CDLL(None, use_errno=True)


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilityWord(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def _checked(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _prctl(option: int, first: int, second: int = 0) -> None:
    unused = ctypes.c_ulong(0)
    _checked(
        _libc.prctl(option, ctypes.c_ulong(first), ctypes.c_ulong(second), unused, unused),
    )


def enter_namespace(uid: int) -> None:
    """Look like `uid` to ourselves while every file still sees the real user.

    Nothing on disk changes hands, and folders that only root may enter stay enterable.
    """
    real_uid, real_gid = os.geteuid(), os.getegid()
    _checked(_libc.unshare(_CLONE_NEWUSER))
    itself = Path("/proc/self")
    (itself / "setgroups").write_text("deny")
    (itself / "uid_map").write_text(f"{uid} {real_uid} 1")
    (itself / "gid_map").write_text(f"{uid} {real_gid} 1")


def drop_to(uid: int, gid: int) -> None:
    """Become `uid`, keeping only the power to enter folders, where we have it to give."""
    # Keeps capabilities through the change, and makes access(2), by which PostgreSQL looks for its
    # own programs, count them.
    _prctl(_PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    header = _Header(_CAPABILITY_VERSION, 0)
    words = (_CapabilityWord * 2)()
    _checked(_libc.capget(ctypes.byref(header), words))
    held = words[0].permitted
    kept = next((c for c in (_CAP_DAC_READ_SEARCH, _CAP_DAC_OVERRIDE) if held & (1 << c)), None)
    mask = 0 if kept is None else 1 << kept
    words[0] = _CapabilityWord(mask, mask, mask)
    words[1] = _CapabilityWord(0, 0, 0)
    _checked(_libc.capset(ctypes.byref(header), words))
    if kept is not None:
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, kept)


def take_identity(identity: str) -> None:
    kind, *numbers = identity.split(":")
    if kind == "namespace":
        enter_namespace(int(numbers[0]))
    elif kind == "drop":
        drop_to(int(numbers[0]), int(numbers[1]))


def _check_reach(folder: str, program: str) -> None:
    os.stat(os.path.join(folder, "."))  # noqa: PTH118, PTH116  # pathlib drops the dot
    if not os.access(program, os.R_OK | os.X_OK):
        raise PermissionError(f"{program} is out of reach")


def main(arguments: list[str]) -> None:
    stop_signal, parent_pid, identity, reach, *command = arguments
    try:
        take_identity(identity)
        if reach:
            _check_reach(reach, command[0])
        # After the change of identity, which would clear it again.
        _prctl(_PR_SET_PDEATHSIG, int(stop_signal))
        if os.getppid() != int(parent_pid):
            sys.exit(0)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.execv(command[0], command)  # noqa: S606  # to become it is what we are for
    except OSError as error:
        sys.stderr.write(f"cannot run {command[0]}: {error}\n")
        sys.exit(EXIT_UNUSABLE)


if __name__ == "__main__":
    main(sys.argv[1:])

"""What a scoring child may reach of the file system and the network, by Linux's Landlock: no privilege is needed.

The child reads what Python itself needs and its own folders, and writes its own folders and devices such as /dev/null:
no SQL and no test function then reaches a template, a ledger, another trajectory or another scoring, whatever path it
names. TCP and signals to processes outside are refused where the kernel can
(https://docs.kernel.org/userspace-api/landlock.html, ABI 4 and 6).

Below ABI 3 nothing is restricted: such a kernel cannot refuse a truncation, or forbids every rename between folders.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

from bird_server.scoring.namespaces import TEMPORARY

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_GET_VERSION = 1
_RULE_PATH_BENEATH = 1
_O_PATH_CLOEXEC = os.O_PATH | os.O_CLOEXEC

#: The first version that knows every right used here.
MINIMUM_ABI = 3
_NETWORK_ABI, _SCOPE_ABI = 4, 6

_READ_FILE, _READ_FOLDER = 1 << 2, 1 << 3
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13)) | 1 << 13  # remove, make, and move between folders
_READ = _READ_FILE | _READ_FOLDER
_ALL = _READ | _WRITE_FILE | _TRUNCATE | _REMOVE_AND_MAKE
_OF_A_FILE = _READ_FILE | _WRITE_FILE | _TRUNCATE
_TCP = 1 << 0 | 1 << 1
_ABSTRACT_SOCKETS_AND_SIGNALS = 1 << 0 | 1 << 1

#: Read by Python, by its C library, and by programs that a test may start. Not /dev: the shared memory is below it.
_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc", "/proc", "/sys", "/opt", "/nix")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")

_libc = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """The kernel's Landlock version; 0 without it."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, 0, _GET_VERSION)))


def restrict(writable: Iterable[str], *, version: int | None = None) -> bool:
    """Restrict this process and all that it starts, for good; whether the kernel did.

    Args:
        writable: The folders that may be written.

    Raises:
        OSError: The kernel has Landlock and refuses the rules.
    """
    known = abi() if version is None else version
    if known < MINIMUM_ABI:
        return False
    network = _TCP if known >= _NETWORK_ABI else 0
    scoped = _ABSTRACT_SOCKETS_AND_SIGNALS if known >= _SCOPE_ABI else 0
    attributes = struct.pack("=QQQ", _ALL, network, scoped)
    size = 24 if known >= _SCOPE_ABI else 16 if known >= _NETWORK_ABI else 8
    ruleset = _call(_CREATE_RULESET, attributes, size, 0)
    try:
        for path in _outermost({*_SYSTEM, *_python_folders()}):
            _allow(ruleset, path, _READ)
        for path in _DEVICES:
            _allow(ruleset, path, _OF_A_FILE)
        for path in writable:
            _allow(ruleset, path, _ALL)
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return True


def _python_folders() -> Iterable[str]:
    return {path for path in (*sys.path, sys.prefix, sys.base_prefix) if path and path not in TEMPORARY}


def _outermost(paths: set[str]) -> list[str]:
    """Without those that lie in another: a rule holds for everything beneath."""
    return [path for path in paths if not any(str(parent) in paths for parent in Path(path).parents)]


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        target = os.open(path, _O_PATH_CLOEXEC)
    except OSError:  # a folder that this machine does not have
        return
    try:
        _call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, struct.pack("=Qi", rights, target), 0)
    finally:
        os.close(target)


def _call(number: int, *arguments: int | bytes) -> int:
    result = int(_libc.syscall(number, *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"Landlock: {os.strerror(code)}")
    return result

"""Runs as `python -I -S child.py <uid> <gid> <signal> <parent pid> <command…>` and becomes the command.

The command runs as that user (`-1`: the current one) and, on Linux, gets that signal when the parent dies. A separate
process does this, because code between fork and exec is not safe in a parent that has threads.
Standard library only: `-S` keeps it to a few milliseconds.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Drop privileges, end with the parent, become the command."""
    uid, gid, death_signal, parent = map(int, sys.argv[1:5])
    command = sys.argv[5:]
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if sys.platform == "linux":
        # After the change of user, because that clears it.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:
            # The parent died before we set the signal.
            os._exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()

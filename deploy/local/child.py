"""Runs as `python -I -S child.py <uid> <gid> <signal> <parent pid> <command…>` and becomes the command.

The command gets that user (`-1`: the present one) and, on Linux, that signal when the parent dies. A process of its
own does this instead of code between fork and exec, which is not safe in a parent that has threads.
Standard library only: `-S` keeps it to a few milliseconds.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Drop privileges, tie our life to the parent's, become the command."""
    uid, gid, death_signal, parent = map(int, sys.argv[1:5])
    command = sys.argv[5:]
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if sys.platform == "linux":
        # After the change of user, which clears it.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:
            # The parent died before we asked to be told.
            os._exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()

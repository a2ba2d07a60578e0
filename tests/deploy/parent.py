"""A parent process to be killed: starts the stack in the given folder, prints the process ids and waits."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from deploy.local.binary import Program
from deploy.local.stack import Stack

if __name__ == "__main__":
    folder, fake = map(Path, sys.argv[1:3])
    program = Program("cdc", "fake", "json", launcher=(sys.executable, str(fake)))
    stack = Stack(folder, durable=False, programs=[program])
    stack.start()
    print(json.dumps({name: part.pid for name, part in stack.parts.items()}), flush=True)
    time.sleep(60)

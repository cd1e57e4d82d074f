"""What runners in peers' own environments share: requests as JSON lines in, tokens as JSON lines out.

In:  {"add": id, "prompt": [ids], "max_tokens": n} or {"cancel": id}; end of input ends the runner.
Out: first {"facts": {...}}; then {"tokens": {id: [new ids]}, "ended": [ids]} or {"failed": {id: why}}.
Only the standard library: it runs in every environment.
"""

import json
import os
import queue
import sys
import threading


class Lines:
    """Takes standard input and output for itself; whatever libraries print goes to standard error."""

    def __init__(self):
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        self._commands = queue.SimpleQueue()
        self._lock = threading.Lock()

    def start(self):
        threading.Thread(target=self._read, daemon=True).start()

    def take(self, *, wait):
        """All commands that are there; None in the list means the end. Waits for one if asked."""
        commands = [self._commands.get()] if wait else []
        while not self._commands.empty():
            commands.append(self._commands.get())
        return commands

    def send_facts(self, **facts):
        self._send({"facts": facts})

    def send_tokens(self, tokens, ended):
        if tokens or ended:
            self._send({"tokens": tokens, "ended": ended})

    def send_failed(self, failed):
        self._send({"failed": failed})

    def _send(self, message):
        with self._lock:
            print(json.dumps(message), file=self._out, flush=True)

    def _read(self):
        for line in sys.stdin:
            self._commands.put(json.loads(line))
        self._commands.put(None)

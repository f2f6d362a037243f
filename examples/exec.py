#!/usr/bin/python3
"""exec.py SID COMMAND [ARGUMENT]...: runs a command in a session and prints its exit status.

Talks to the session's control socket (docs/PROTOCOL.md) and needs nothing but Python. The command
gets our own stdin, stdout and stderr, which must be no terminal: what the command leaves running
would read what is typed there.
"""

import json
import os
import socket
import sys


def socket_of(sid):
    user = os.getuid()
    parents = [f"/run/user/{user}/sandbox", f"/dev/shm/sandbox-{user}", f"/tmp/sandbox-{user}"]
    if "XDG_RUNTIME_DIR" in os.environ:
        parents.insert(0, os.environ["XDG_RUNTIME_DIR"] + "/sandbox")
    paths = [f"{parent}/{sid}/control.sock" for parent in parents]
    return next(filter(os.path.exists, paths), None) or sys.exit(f"no session {sid}")


def run(sid, command):
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(socket_of(sid))
        messages = map(json.loads, line.makefile(encoding="utf-8"))
        if next(messages)["version"] != 1:
            sys.exit("a session of another version")
        request = json.dumps({"cmd": "cmd.exec", "argv": command}) + "\n"
        socket.send_fds(line, [request.encode()], [0, 1, 2])
        for message in messages:
            if "error" in message:
                sys.exit("refused: " + message["error"]["message"])
            if message["event"] == "event.failed":
                sys.exit("not started: " + os.strerror(message["errno"]))
            if message["event"] == "event.exited":
                return os.waitstatus_to_exitcode(message["status"])
    sys.exit("the session has ended")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__.splitlines()[0])
    if any(map(os.isatty, range(3))):
        sys.exit("not with a terminal: exec.py SID COMMAND </dev/null 2>&1 | cat")
    print("exit status", run(sys.argv[1], sys.argv[2:]))

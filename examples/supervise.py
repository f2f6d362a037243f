#!/usr/bin/python3
"""supervise.py SID FOLDER...: answers a session's questions: yes below these folders, else no.

Talks to the session's control socket (docs/PROTOCOL.md) and needs nothing but Python. An approval
holds for the session, a denial for one access.
"""

import base64
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


def reply(request, folders):
    path = base64.b64decode(request.get("path_b64", "")) + b"/"
    if any(path.startswith(os.fsencode(folder).rstrip(b"/") + b"/") for folder in folders):
        return {"cmd": "cmd.approve", "id": request["id"], "scope": "session"}
    return {"cmd": "cmd.deny", "id": request["id"]}


def supervise(sid, folders):
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(socket_of(sid))
        line.sendall(b'{"cmd": "cmd.watch"}\n')
        for message in map(json.loads, line.makefile(encoding="utf-8")):
            if message.get("event") in ("event.fs_request", "event.net_request"):
                answer = reply(message, folders)
                line.sendall(json.dumps(answer).encode() + b"\n")
                print(answer["cmd"], ascii(message.get("path") or message.get("host")), flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__.splitlines()[0])
    supervise(sys.argv[1], sys.argv[2:])

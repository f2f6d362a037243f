"""A file system whose server can stop to answer: hung_server.py FOLDER. Lines on standard input say which requests are left without an
answer from now on ("hang lookup getattr", "hang all"), or that those get one now ("go"). At the end of the input it is over, and the kernel
lets everybody go."""

import ctypes
import errno
import os
import select
import stat
import struct
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
OPCODES = {"lookup": 1, "forget": 2, "getattr": 3, "readlink": 5, "open": 14, "read": 15, "statfs": 17, "release": 18, "init": 26, "opendir": 27,
           "readdir": 28, "releasedir": 29, "access": 34, "destroy": 38, "batch_forget": 42, "interrupt": 36, "flush": 25, "statx": 52}
SILENT = {OPCODES[name] for name in ("forget", "batch_forget", "interrupt")}
HOLDABLE = {OPCODES[name] for name in ("lookup", "getattr", "readlink", "open", "read", "statfs", "opendir", "readdir", "access")}
IN_HEADER, OUT_HEADER = struct.Struct("<IIQQIIIHH"), struct.Struct("<IiQ")

# Number: name, above, content (a folder has none).
ROOT, FILE, FOLDER, INNER = 1, 2, 3, 4
OBJECTS = {ROOT: ("", ROOT, None), FILE: ("file", ROOT, b"content\n"), FOLDER: ("folder", ROOT, None), INNER: ("inner", FOLDER, b"inner\n")}


def attributes(number):
    content = OBJECTS[number][2]
    mode = stat.S_IFDIR | 0o755 if content is None else stat.S_IFREG | 0o644
    return struct.pack("<QQQQQQIIIIIIIIII", number, len(content or b""), 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def listing(number, offset):
    entries = [(".", number), ("..", OBJECTS[number][1])]
    entries += [(name, child) for child, (name, above, _) in OBJECTS.items() if above == number and name]
    for place, (name, child) in list(enumerate(entries, 1))[offset:]:
        kind = stat.S_IFDIR if OBJECTS[child][2] is None else stat.S_IFREG
        text = name.encode()
        yield struct.pack("<QQII", child, place, len(text), kind >> 12) + text + bytes(-len(text) % 8)


class Server:
    def __init__(self, folder):
        self.device = os.open("/dev/fuse", os.O_RDWR)
        self.hanging, self.held = set(), []
        options = f"fd={self.device},rootmode=40000,user_id=0,group_id=0,allow_other"
        if LIBC.mount(b"hung", folder.encode(), b"fuse.hung", 0, options.encode()) < 0:
            raise OSError(ctypes.get_errno(), "mount")

    def answer(self, request):
        length, opcode, unique, node, *_ = IN_HEADER.unpack_from(request)
        body = request[IN_HEADER.size:length]
        if opcode in self.hanging:
            self.held.append(request)
        elif opcode not in SILENT:
            error, data = self.result(opcode, node, body)
            os.write(self.device, OUT_HEADER.pack(OUT_HEADER.size + len(data), -error, unique) + data)

    def result(self, opcode, node, body):
        name = next((name for name, code in OPCODES.items() if code == opcode), "")
        return getattr(self, f"on_{name}", lambda *_: (errno.ENOSYS, b""))(node, body)

    def on_init(self, _, body):
        return 0, struct.pack("<IIIIHHIIHH32x", 7, 31, 65536, 0, 16, 12, 65536, 1, 0, 0)

    def on_lookup(self, node, body):
        for number, (name, above, _) in OBJECTS.items():
            if above == node and name.encode() == body.rstrip(b"\0"):
                return 0, struct.pack("<QQQQII", number, 1, 0, 0, 0, 0) + attributes(number)
        return errno.ENOENT, b""

    def on_getattr(self, node, _):
        return 0, struct.pack("<QII", 0, 0, 0) + attributes(node)

    def on_open(self, *_):
        return 0, struct.pack("<QII", 0, 1, 0)

    on_opendir = on_open

    def on_read(self, node, body):
        _, offset, size = struct.unpack_from("<QQI", body)
        return 0, OBJECTS[node][2][offset:offset + size]

    def on_readdir(self, node, body):
        _, offset, _ = struct.unpack_from("<QQI", body)
        return 0, b"".join(listing(node, offset))

    def on_statfs(self, *_):
        return 0, struct.pack("<QQQQQIII28x", 0, 0, 0, 0, 0, 4096, 255, 4096)

    def on_release(self, *_):
        return 0, b""

    on_releasedir = on_flush = on_access = on_destroy = on_release

    def command(self, words):
        if words[0] == "go":
            self.hanging, held, self.held = set(), self.held, []
            for request in held:
                self.answer(request)
        else:
            self.hanging = HOLDABLE if words[1] == "all" else {OPCODES[word] for word in words[1:]}

    def serve(self):
        print("ready", flush=True)
        while True:
            for source in select.select([self.device, 0], [], [])[0]:
                data = os.read(source, 1 << 17)
                if not data:
                    return
                if source == self.device:
                    self.answer(data)
                    continue
                self.command(data.decode().split())
                print("done", flush=True)


if __name__ == "__main__":
    Server(sys.argv[1]).serve()

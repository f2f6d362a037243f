"""Sequences of calls by one process, made from a seed: what one call leaves behind may change what the next one
does. Each is performed outside and inside, where every question is approved at once, and must come to the same.
What docs/GATE.md says to be different is below, as narrow as it can be said.

A failure prints the seed and the sequence; SANDBOX_TEST_SEED=N begins with that one."""

import os
import random
import re

import pytest

import gates
import sequences

COUNT = 24  # in a session
BATCHES = 20 if gates.LONG else 1
SEED = int(os.environ.get("SANDBOX_TEST_SEED", "1"))

WRITES = {"mkdir", "unlink", "rename", "link", "symlink", "mknod", "truncate", "chmod", "chown", "utimens", "setxattr",
          "bind", "write", "ftruncate", "fallocate", "fchmod", "renameat", "linkat", "fchmodat2", "setxattrat", "removexattrat"}
LOOKS = {"stat", "statx", "fstat"}
OPENS = {"open", "openat2", "passed"}
FOLDER = re.compile(r"(^|[@/ ])(dir|sub|pass|sticky|shut|bare|other|dlink|\.|\.\.)/?( |$)|/( |$)|%\d|^\d")
NOFOLLOW = 0x100
DONT_SYNC = 0x4000  # what the kernel remembers


def is_error(said):
    return re.fullmatch("E[A-Z0-9]+", said)


def writes(name, words):
    flags = int(words[3]) if name in OPENS else 0
    return name in WRITES or (flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and not flags & os.O_PATH) or \
        (name == "access" and int(words[2]) & os.W_OK)


def is_other_folder(gate, outside, inside):
    """One that is not mounted yet: another number of links; with notify its likeness has all of its own."""
    both = outside.startswith("4") and inside.startswith("4")
    return both and (gate == "notify" or outside.split(" nlink")[0] == inside.split(" nlink")[0])


def is_declared(gate, asks, call, outside, inside):
    """Why the two may differ, or None."""
    _, name, *words = call.split()
    text = " ".join(words)
    rules = {
        "both refuse, in another order": is_error(outside) and is_error(inside),
        "forbidden to all": name == "handle" and inside == "EPERM",
        "a folder is not mounted yet": name in LOOKS and is_other_folder(gate, outside, inside),
        "so it becomes another one": name in ("enter", "same") and {outside, inside} == {"same", "other"},
        "attributes of folders are not told": (name.endswith("xattr") or name in ("getxattrat", "listxattrat", "attributes")) and
                                              FOLDER.search(text) and name != "setxattr",
        "or those of their likeness": gate == "notify" and name == "access" and FOLDER.search(text),
        "the file system is the gate's": name in ("statfs", "fstatfs") and not is_error(outside + inside),
        "nobody is asked what a link itself may be used for": gate == "fuse" and name == "access" and
                                                              int(words[3]) & NOFOLLOW,
        "not asked about": gate == "fuse" and name == "statx" and int(words[2]) == DONT_SYNC,
        "flags of files are not told": gate == "fuse" and name == "attributes" and inside in ("ESTALE", "EOPNOTSUPP"),
        "nor are attributes of links": gate == "fuse" and name in ("getxattrat", "listxattrat") and
                                       int(words[2]) & NOFOLLOW and inside == "EOPNOTSUPP",
        "the names of /proc": name in ("names", "list") and " acpi:" in outside,
        "a FIFO or socket cannot be made to wait": gate == "fuse" and name in OPENS and
                                                   int(words[3]) & os.O_NOFOLLOW and inside in ("EACCES", "ELOOP"),
        "no walk ends there": gate == "fuse" and name in ("open", "passed") and "fifo" in text,
        "only what is in a closed folder is": gate == "fuse" and outside == "EACCES" and
                                              re.search(r"/\.\.?( |/|$)", text),
        "onto itself": name == "rename" and words[0] == words[1],
        "a FIFO, to write": not asks and writes(name, words) and "fifo" in text,
    }
    return next((why for why, applies in rules.items() if applies), None)


# After it nothing can be compared: it was done outside. Above a mount nothing is granted as a whole, a socket is
# not mounted to be changed, and mounts stay where they are.
REFUSED_WRITES = ("EROFS", "EBUSY", "EXDEV", "EOVERFLOW", "ESTALE", "EOPNOTSUPP")


def first_difference(gate, asks, calls, outside, inside):
    for step, call in enumerate(calls):
        if outside[step] == inside[step] or is_declared(gate, asks, call, outside[step], inside[step]):
            continue
        _, name, *words = call.split()
        if asks and writes(name, words) and inside[step] in REFUSED_WRITES:
            return None
        return step
    return None


def described(calls, outside, inside, step):
    return "\n".join(f"{call}: {outside[number]}" + ("" if inside[number] == outside[number] else f", inside {inside[number]}")
                     for number, call in enumerate(calls[:step + 1]))


def plain(said):
    """Users who have no name inside are one."""
    return re.sub(r"uid (0|65534)\b", "uid of another", said)


@pytest.mark.parametrize("asks", [False, True], ids=["reads", "writes"])
def test_sequences_give_what_they_give_outside(box, gate, host_root, asks):
    if box.identity.uid == 0:
        pytest.skip("root outside has more rights than its files give it")
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    options = ["--policy", box.home("writes.yaml")] if asks else []
    problems, fine = [], 0
    for seed in range(SEED, SEED + BATCHES):
        maker = sequences.Maker(seed, asks)
        batch = sequences.Batch(box, [maker.sequence() for _ in range(COUNT)])
        for number, (calls, outside, inside) in enumerate(zip(
                batch.sequences, batch.outside(asks), batch.inside(gate, options))):
            outside, inside = [plain(said) for said in outside], [plain(said) for said in inside]
            fine += sum(not is_error(said) for said in inside)
            step = first_difference(gate, asks, calls, outside, inside)
            if step is not None:
                problems.append(f"seed {seed}, sequence {number} at {batch.grounds[number].prefix}:\n" +
                                described(calls, outside, inside, step))
    assert not problems, "\n\n".join(problems)
    assert fine > BATCHES * COUNT  # the control: it is not that everything is refused


# What no file gives: a call that was lost, or an answer for somebody else.
STRAY = {"nothing", "ESRCH", "EIO", "ENOSYS", "EINTR", "EFAULT", "ENOTCONN", "EDEADLK", "EAGAIN", "EMFILE", "ENFILE", "ENOMEM"}


def test_sequences_end_whatever_is_answered(box, gate, host_root):
    """No, yes for the session, or as little as can be, by chance; writes are asked about. Every call comes to an end, and
    to one that a file can have. The control: outside all of them do."""
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    dice, maker, given = random.Random(SEED), sequences.Maker(SEED, True), []

    def answer(event):
        given.append(dice.choice(("deny", "session", event["narrowest"])))
        return gates.deny() if given[-1] == "deny" else gates.approve(given[-1])

    batch = sequences.Batch(box, [maker.sequence() for _ in range(COUNT // 2)])
    outside = batch.outside(True)
    with batch.laid() as argv:
        done, _ = gates.run(box, gate, argv, answer, ["--policy", box.home("writes.yaml")])
    stray = [described(calls, told, said, step)
             for calls, told, said in zip(batch.sequences, outside, batch.answers(done.stdout))
             for step in range(len(calls)) if said[step] in STRAY and told[step] != said[step]]
    assert done.exit == 0 and not stray, "\n\n".join([*stray, done.stderr])
    assert {"deny", "session", "once"} <= set(given), given

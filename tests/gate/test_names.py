"""Names with any bytes, in everything that we say about them: a folder, a file, a program. What the
terminal would obey, and what looks like something else, is made visible."""

import os
import shutil

import gates
import sessions
from gates import files

ODD = os.fsdecode(b"odd\x1b[2K\n\xff\xe2\x80\xae'\"\\$(x)\r\x07\t\xc2\x9b: {a")
USES = '"$0" open "$1/a" open "$1/b" create "$1/new" open "$1/c" inotify-nofollow "$1/b"; ' \
       'touch ready; sleep 60'
ANSWERS = {"a": gates.approve("user"), "b": gates.deny(scope="user"), "c": gates.approve("project")}


def odd_letters(text):
    return {letter for letter in text if letter != "\n" and not " " <= letter <= "~"}


def verbs(sid, folder):
    """Each says something about one of the names, or was given one."""
    path = f"{folder}/a"
    return [("ps",), ("ps", sid), ("ps", "--json"), ("policy", "show"), ("policy", "grants"),
            ("policy", "export"), ("policy", "check", path), ("policy", "explain", path),
            ("policy", "diff", path), ("policy", "import", "--dry-run", path), ("audit",),
            ("audit", sid), ("audit", "--json"), ("audit", "--path", path),
            ("policy", "revoke", path), ("policy", "revoke", f"{folder}/nothing"),
            ("policy", "revoke", "--session", sid, f"{folder}/c"), ("approve", sid, ODD),
            ("deny", sid, ODD), ("kill", ODD), ("report", ODD), ("exec", sid, "--", f"{folder}/none"),
            ("run", "--", f"{folder}/none"), ("run", "--ro", f"{folder}/none", "--", "true"),
            ("run", "--dry-run", "--ro", folder, "--", "true"), ("decide", "--", path),
            ("run", "--mode", "dynamic", "--", "sh", "-c",
             'exec >made 2>&1; "$0" open "$1" create "$1.x"', f"{folder}/pro{ODD}", path), ("learn", "--", "true", path)]


def test_every_message_is_plain(box, gate, ground):
    folder = f"{ground}/{ODD}"
    for name in ANSWERS:
        box.identity.file(f"{folder}/{name}", "content\n")
    program = f"{folder}/pro{ODD}"
    shutil.copy(files(box), program)
    os.chmod(program, 0o755)
    for path in (folder, program):
        box.identity.own(path)
    with gates.Session(box, gate, ["/bin/sh", "-c", USES, program, folder],
                       lambda event: ANSWERS.get(event["path"][-1], gates.approve())
                       if event["path"][-2] == "/" else gates.approve()) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("ready")), 20), it.asked
        said, odd = 0, {}
        for words in verbs(it.sid, folder):
            result = sessions.sandbox(box, *words)
            said += "odd" in result.stdout + result.stderr
            if letters := odd_letters(result.stdout + result.stderr):
                odd[words] = letters
        sessions.sandbox(box, "kill", "--now", it.sid)
        result = it.finish()
    assert not odd and said > 15, (odd, said)
    assert not odd_letters(result.stderr) and "denied" in result.stderr, result

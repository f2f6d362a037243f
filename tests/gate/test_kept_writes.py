"""Answers that were kept and allow writing: they hold in the next session without a question, and no further than the
answer went."""

import os
import sys

import pytest

import gates
import sessions
from gates import approve, deny

SECRET = ".env"


def ask_writes(box):
    return ["--policy", box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")]


def keep(box, *answers):
    """Earlier answers: "allow", path and access of each."""
    lines = "".join(f"  - {{decision: {decision}, path: '{path}', access: {access}}}\n"
                    for decision, path, access in answers)
    box.identity.file(box.home(".config/sandbox/grants.yaml"), f"version: 1\ngrants:\n{lines}")


@pytest.fixture
def kept(box, ground):
    """A folder that an earlier answer allows to write to, with a secret in it."""
    box.identity.file(f"{ground}/{SECRET}", f"{box.canary}\n")
    keep(box, ("allow", ground, "write"))
    return ground


def run(box, gate, script, answer=lambda event: deny(), options=()):
    return gates.run(box, gate, ["/bin/sh", "-c", script], answer, options=options)


def test_an_answer_holds_in_the_next_session(box, gate, ground):
    """Also where nobody is asked about writes."""
    write = f"echo %s >{ground}/made && cat {ground}/made"
    inside, asked = run(box, gate, write % "first", lambda event: approve("user"), ask_writes(box))
    assert inside.stdout == "first\n" and len(asked) == 1, (inside, asked)
    for options in ((), ask_writes(box)):
        inside, asked = run(box, gate, write % "again", options=options)
        assert inside.stdout == "again\n" and not asked, (inside, asked)


@pytest.mark.parametrize("first", ["read", "write", "list", "rename", "enter", "enter-deep", "test"])
def test_the_first_use_may_be_any(box, gate, kept, first):
    script = {"read": f"cat {kept}/file >/dev/null", "write": f"echo x >{kept}/first", "list": f"ls {kept} >/dev/null",
              "rename": f"mv {kept}/exact {kept}/moved", "enter": f"cd {kept} && echo x >first && echo x >>exact",
              "enter-deep": f"cd {kept}/sub && echo x >first && echo x >../first", "test": f"test -w {kept}"}[first]
    inside, asked = run(box, gate, f"{script} && echo more >>{kept}/file && mkdir {kept}/new && cat {kept}/file")
    assert inside.stdout == "content of the file\nmore\n" and not asked, (inside, asked)
    assert os.path.isdir(f"{kept}/new")


def test_a_socket_may_be_bound_there(box, gate, kept):
    script = "import socket; one = socket.socket(socket.AF_UNIX); one.bind(%r); one.listen(); " \
        "two = socket.socket(socket.AF_UNIX); two.connect(%r); print('spoken to')" % (2 * (f"{kept}/s.sock",))
    inside, asked = gates.run(box, gate, [sys.executable, "-c", script], lambda event: deny())
    assert inside.stdout == "spoken to\n" and not asked, (inside, asked)


@pytest.mark.escape
def test_secrets_in_it_stay_covered(box, gate, kept):
    assert box.canary in box.plain(["cat", f"{kept}/{SECRET}"]).stdout, "the control"
    inside, _ = run(box, gate, f"cat {kept}/{SECRET}; echo x >{kept}/made; cat {kept}/{SECRET}; cat {kept}/made")
    assert inside.stdout == "x\n", inside


@pytest.mark.escape
@pytest.mark.parametrize("asks", [False, True], ids=["refused", "asked"])
def test_revoking_takes_effect_at_once(box, gate, kept, asks):
    write = f"echo %s >>{kept}/made && echo written"
    options = ask_writes(box) if asks else ()
    script = f"{write % 1}; touch ready; while [ ! -e go ]; do sleep 0.02; done; {write % 2}; cat {kept}/file"
    with gates.Session(box, gate, ["/bin/sh", "-c", script], lambda event: deny(), options=options) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("ready")))
        before = list(it.asked)
        revoked = sessions.sandbox(box, "policy", "revoke", kept)
        gates.go_on(box)
        inside = it.finish()
    assert revoked.exit == 0 and not before, (revoked, before)
    assert inside.stdout == "written\n", inside
    with open(f"{kept}/made") as made:
        assert made.read() == "1\n"
    assert any(op == "write" for op, _ in it.asked) == asks, it.asked


@pytest.mark.parametrize("inner", [("sub", "write"), ("sub", "read"), ("file", "write"), ("gone/deep", "write")],
                         ids=lambda inner: "-".join(inner).replace("/", "-"))
@pytest.mark.parametrize("asks", [False, True], ids=["refused", "asked"])
def test_an_answer_for_something_in_it_takes_nothing_away(box, gate, kept, inner, asks):
    """Whichever is used first. The control: what is denied in it stays so."""
    keep(box, ("allow", kept, "write"), ("allow", f"{kept}/{inner[0]}", inner[1]), ("deny", f"{kept}/exact", "read"))
    script = f"cat {kept}/sub/below {kept}/file; for at in sub/made made sub/below file exact; " \
             f"do echo x >>{kept}/$at && echo $at; done; cat {kept}/exact"
    inside, asked = run(box, gate, script, options=ask_writes(box) if asks else ())
    assert inside.stdout.split("\n")[2:] == ["sub/made", "made", "sub/below", "file", ""] and not asked, (inside, asked)


def test_a_folder_above_that_may_be_read_does_not_cover_it(box, gate, kept):
    above = os.path.dirname(kept) + "/above"
    box.identity.folder(above)
    os.rename(kept, f"{above}/gated")
    box.identity.file(f"{above}/other", "content of the other\n")
    keep(box, ("allow", f"{above}/gated", "write"))
    inside, asked = run(box, gate, f"cat {above}/other; echo x >{above}/gated/made; cat {above}/gated/made; "
                                   f"touch {above}/mine || echo refused", lambda event: approve(tree=above))
    assert inside.stdout == "content of the other\nx\nrefused\n", (inside, asked)
    assert [path for _, path in asked] == [f"{above}/other"], asked


def test_it_holds_below_what_a_rule_shows(box, gate, ground):
    """It is mounted from the start then, and who revokes it is told that it stays."""
    keep(box, ("allow", f"{ground}/sub", "write"))
    script = f"echo x >>{ground}/sub/below && cat {ground}/sub/below; echo x >>{ground}/file; touch ready; " \
             f"while [ ! -e go ]; do sleep 0.02; done"
    with gates.Session(box, gate, ["/bin/sh", "-c", script], lambda event: deny(), options=["--ro", ground]) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("ready")))
        revoked = sessions.sandbox(box, "policy", "revoke", f"{ground}/sub")
        gates.go_on(box)
        inside = it.finish()
    assert inside.stdout == "content below\nx\n" and not it.asked, (inside, it.asked)
    assert revoked.exit == 125 and f"sandbox kill {it.sid}" in revoked.stderr, revoked
    assert sessions.sandbox(box, "policy", "grants").stdout == ""


def test_it_is_said_if_it_cannot_be_granted(box, gate, kept):
    """A mount of the folder would cover what the session has in it from its start. What it is told to do helps."""
    make = f"echo x >{kept}/made && cat {kept}/made"
    inside, _ = run(box, gate, make, options=["--ro", f"{kept}/sub"])
    assert inside.stdout == "" and f"sandbox run --rw {kept}," in inside.stderr, inside
    inside, _ = run(box, gate, make, options=["--ro", f"{kept}/sub", "--rw", kept])
    assert inside.stdout == "x\n" and "denied" not in inside.stderr, inside


@pytest.mark.escape
def test_protected_names_in_it_stay_protected(box, gate, kept):
    box.identity.file(f"{kept}/.git/hooks/post-checkout", "of the host\n")
    box.identity.file(f"{kept}/.git/config", "[core]\n")
    inside, _ = run(box, gate, f"echo x >{kept}/made && echo written; echo PAYLOAD >{kept}/.git/hooks/post-checkout; "
                               f"echo PAYLOAD >>{kept}/.git/config; mv {kept}/.git {kept}/away")
    assert inside.stdout == "written\n", inside
    assert "PAYLOAD" not in box.plain(["cat", f"{kept}/.git/hooks/post-checkout", f"{kept}/.git/config"]).stdout

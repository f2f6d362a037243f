"""Files outside the project that are called like secrets (.env): asked about as what they are, and covered in a folder
that is allowed as a whole. Each test has something beside them that stays readable, and shows that outside they can be read."""

import contextlib
import os
import time

import pytest

import gates
import sessions
from gates import approve, deny

SECRETS = (".env", ".env.production", "sub/prod.env", "sub/deep/id_ed25519", "sub/.netrc")
OTHERS = (".env.example", "sub/environment", "sub/deep/id_ed25519.pub")


@pytest.fixture
def secrets(box, ground):
    """The folder with both in it."""
    for name in SECRETS:
        box.identity.file(f"{ground}/{name}", f"{box.canary} {name}\n")
    for name in OTHERS:
        box.identity.file(f"{ground}/{name}", f"content of {name}\n")
    everything = box.plain(["cat", *(f"{ground}/{name}" for name in SECRETS)])
    assert everything.stdout.count(box.canary) == len(SECRETS), "the control"
    return ground


def cat(folder, *names):
    return "; ".join(f"cat {folder}/{name}" for name in names)


def run(box, gate, script, answer, *options):
    return gates.run(box, gate, ["/bin/sh", "-c", script], answer, options=options)


@contextlib.contextmanager
def waiting(box, gate, script):
    """A session that waits for the answer to its first question, and that question."""
    questions = []
    with gates.Session(box, gate, ["/bin/sh", "-c", script], lambda event: questions.append(event["id"])) as it:
        assert sessions.eventually(lambda: questions)
        yield it, questions[0]


# ---- the question ----


@pytest.mark.parametrize("scope", ["once", "session"])
def test_the_question_is_one_about_a_secret(box, gate, secrets, scope):
    marked = {}

    def answer(event):
        marked[os.path.relpath(event["path"], secrets)] = event.get("secret")
        return approve(scope)

    inside, _ = run(box, gate, cat(secrets, *SECRETS, *OTHERS), answer)
    assert inside.exit == 0 and inside.stdout.count(box.canary) == len(SECRETS), inside
    assert all(marked[name] for name in SECRETS) and not any(marked[name] for name in OTHERS), marked
    assert marked[".env"] == "settings file with secrets" and marked["sub/deep/id_ed25519"] == "SSH key"


@pytest.mark.parametrize("words", [["--session", "--tree"], ["--user"], ["--project"]], ids=["tree", "user", "project"])
def test_it_is_not_allowed_by_a_folder_nor_kept(box, gate, secrets, words):
    words = [*words, secrets] if "--tree" in words else words
    with waiting(box, gate, cat(secrets, ".env")) as (it, question):
        reply = sessions.sandbox(box, "approve", *words, it.sid, question)
        assert reply.exit != 0 and "secret" in reply.stderr, reply
        assert sessions.sandbox(box, "deny", it.sid, question).exit == 0
        inside = it.finish()
    assert box.canary not in inside.stdout, inside


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
def test_they_stay_covered_in_a_folder_that_the_host_moves_away(box, gate, secrets, inside):
    """Nobody looks after it there, and what is in it was allowed by another name. The control: what is no secret in it
    can be read before."""
    folder, secret = f"{secrets}/sub", "." if inside else f"{secrets}/sub"
    script = (f"cat {folder}/environment; top=$PWD; {f'cd {folder};' if inside else ''} touch $top/ready; "
              "while [ ! -e $top/go ]; do sleep 0.02; done; "
              f"timeout 1 sh -c 'until cat {secret}/prod.env; do sleep 0.1; done'")
    with gates.Session(box, gate, ["/bin/sh", "-c", script], lambda event: approve(tree=folder)) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("ready")))
        os.rename(folder, f"{secrets}/elsewhere")
        time.sleep(0.3)  # as long as it takes to notice, on a busy machine
        os.rename(box.identity.file(f"{secrets}/saved", box.canary), f"{secrets}/elsewhere/prod.env")
        gates.go_on(box)
        result = it.finish()
    assert result.stdout == "content of sub/environment\n", (result, it.asked)


def test_what_a_rule_allows_is_not_asked_about(box, gate, secrets):
    """By its own name, or with its folder: a person has written that."""
    box.identity.file(box.home("rules.yaml"), f"version: 1\nfilesystem: {{read: ['{secrets}/sub']}}\n")
    names = (".env", "sub/prod.env", "sub/deep/id_ed25519")
    inside, asked = run(box, gate, cat(secrets, *names), lambda event: deny(), "--ro", f"{secrets}/.env",
                        "--policy", box.home("rules.yaml"))
    assert inside.stdout.count(box.canary) == len(names) and not asked, (inside, asked)


# ---- a folder that is allowed as a whole ----


@pytest.mark.parametrize("writes", ["false", "true"])
def test_they_stay_covered_in_a_folder_that_is_allowed(box, gate, secrets, writes):
    """With ask_writes FUSE serves the folder without a mount: there they are asked about."""
    box.identity.file(box.home("writes.yaml"), f"version: 1\nfilesystem: {{ask_writes: {writes}}}\n")
    script = cat(secrets, "file", *SECRETS, *OTHERS)
    inside, asked = run(box, gate, script, lambda event: deny() if event.get("secret") else approve(tree=secrets),
                        "--policy", box.home("writes.yaml"))
    assert inside.stdout == "content of the file\n" + "".join(f"content of {name}\n" for name in OTHERS), inside
    assert inside.stderr.count("denied") >= len(SECRETS) and box.canary not in inside.stderr
    if writes == "false":
        assert len(asked) == 1, asked


def test_their_second_names_stay_covered(box, gate, secrets):
    """A hard link is the same file by a name that says nothing. One of what is no secret can be read. The control:
    outside all can be read."""
    os.link(f"{secrets}/.env", f"{secrets}/sub/deep/innocent")
    os.link(f"{secrets}/sub/prod.env", f"{secrets}/other")
    os.link(f"{secrets}/sub/environment", f"{secrets}/sub/harmless")
    names = ("sub/harmless", "other", "sub/deep/innocent")
    assert box.plain(["/bin/sh", "-c", cat(secrets, *names)]).stdout.count(box.canary) == 2
    inside, asked = run(box, gate, cat(secrets, *names, "sub/prod.env"), lambda event: approve(tree=secrets))
    assert inside.stdout == "content of sub/environment\n", inside
    assert asked == [("read", f"{secrets}/sub/harmless")], asked


@pytest.mark.parametrize("part", ["sub/environment", "sub/deep/harmless"])
def test_their_second_names_stay_covered_in_parts_of_the_folder(box, gate, secrets, part):
    """Something in it was allowed by itself before, so that the rest is granted in parts: the secret whose second name
    lies in one is in another. The control: what is no secret there can be read."""
    for name in ("innocent", "harmless", "other"):
        os.link(f"{secrets}/{'.env' if name == 'innocent' else 'sub/environment'}", f"{secrets}/sub/deep/{name}")
    names = (part, "file", "sub/deep/innocent", "sub/deep/other")
    answers = iter([approve(), approve(tree=secrets)])
    inside, asked = run(box, gate, cat(secrets, *names), lambda event: next(answers))
    assert inside.stdout == "content of sub/environment\ncontent of the file\ncontent of sub/environment\n", (inside, asked)
    assert [path for _, path in asked] == [f"{secrets}/{part}", f"{secrets}/file"], asked


def test_the_question_about_a_second_name_is_one_about_a_secret(box, gate, secrets):
    """It warns, and the answer is for that one path and never kept."""
    os.link(f"{secrets}/.env", f"{secrets}/innocent")
    os.link(f"{secrets}/file", f"{secrets}/harmless")
    questions = []

    def answer(event):
        questions.append((bool(event.get("secret")), event["widest"] == "session"))
        return approve()

    inside, _ = run(box, gate, cat(secrets, "innocent", "harmless"), answer)
    assert box.canary in inside.stdout and "content of the file" in inside.stdout, inside
    assert questions == [(True, True), (False, False)]


def test_they_stay_covered_by_an_answer_that_was_kept(box, gate, secrets):
    script = cat(secrets, "file", *SECRETS, *OTHERS)
    for scope, asks in (("user", 1), ("session", 0)):
        inside, asked = run(box, gate, script, lambda event: approve(scope, tree=secrets))
        assert inside.stdout.startswith("content of the file\n"), (inside, asked)
        assert inside.stdout.count("content of") == 1 + len(OTHERS) and box.canary not in inside.stdout, inside
        assert len(asked) == asks, asked
    inside, asked = run(box, gate, cat(secrets, ".env"), lambda event: approve())
    assert box.canary in inside.stdout and len(asked) == 1, "by itself it can still be allowed"


def test_what_a_link_leads_to_is_covered_where_it_is(box, gate, secrets):
    box.identity.file(f"{secrets}/sub/real", box.canary)
    os.symlink("sub/real", f"{secrets}/.env.local")
    os.symlink("/etc/hostname", f"{secrets}/.env.other")
    os.symlink(".", f"{secrets}/.env.itself")
    inside, asked = run(box, gate, cat(secrets, "file", ".env.local", "sub/real", "sub/below") + "; cat /etc/passwd >&2",
                        lambda event: approve(tree=secrets))
    assert inside.stdout == "content of the file\ncontent below\n" and "root:" in inside.stderr, (inside, asked)


def test_a_folder_of_that_name_is_covered_as_a_whole(box, gate, secrets):
    box.identity.file(f"{secrets}/sub/.env/inside", box.canary)
    inside, asked = run(box, gate, cat(secrets, "file", "sub/.env/inside", "sub/below"), lambda event: approve(tree=secrets))
    assert inside.stdout == "content of the file\ncontent below\n", (inside, asked)


@pytest.mark.parametrize("first", [".env", "sub/.netrc"])
def test_one_that_was_allowed_by_itself_stays_so(box, gate, secrets, first):
    script = cat(secrets, first, "file", "sub/below", first, "sub/prod.env", ".env.production")
    inside, asked = run(box, gate, script, lambda event: (approve() if event["path"] == f"{secrets}/{first}" else
                                                          deny() if event.get("secret") else approve(tree=secrets)))
    line = f"{box.canary} {first}\n"
    assert inside.stdout == f"{line}content of the file\ncontent below\n{line}", (inside, asked)


def test_what_was_denied_by_itself_stays_so(box, gate, secrets):
    script = cat(secrets, ".env", "file", ".env", "sub/below")
    inside, asked = run(box, gate, script, lambda event: deny(scope="session") if event.get("secret") else
                        approve(tree=secrets))
    assert inside.stdout == "content of the file\ncontent below\n", (inside, asked)


def test_who_allows_a_folder_is_told(box, gate, secrets):
    for folder, says in ((secrets, True), (f"{secrets}/deep-down", False)):
        box.identity.file(f"{folder}/plain", "plain\n")
        with waiting(box, gate, cat(folder, "plain")) as (it, question):
            reply = sessions.sandbox(box, "approve", "--session", "--tree", folder, it.sid, question)
            assert reply.exit == 0 and ("stay hidden" in reply.stderr) == says, reply
            assert it.finish().stdout == "plain\n"


# ---- what the host does meanwhile ----


@pytest.mark.parametrize("how", ["made", "renamed", "replaced"])
def test_one_that_appears_later_is_covered(box, gate, secrets, how):
    """The control: a file of another name that appears in the same way can be read."""
    name = ".env" if how == "replaced" else "sub/late.env"
    script = (f"cat {secrets}/file; echo ready; until grep late {secrets}/sub/late 2>/dev/null; do sleep 0.05; done; "
              f"sleep 1; cat {secrets}/{name}")
    with gates.Session(box, gate, ["/bin/sh", "-c", script], lambda event: approve(tree=secrets)) as it:
        assert sessions.eventually(lambda: it.asked)
        time.sleep(1)  # the keeper watches by then
        for target, text in ((name, box.canary), ("sub/late", "late\n")):
            if how == "made":
                box.identity.file(f"{secrets}/{target}", text)
            else:
                box.identity.file(f"{secrets}/new", text)
                os.rename(f"{secrets}/new", f"{secrets}/{target}")
        inside = it.finish()
    assert box.plain(["cat", f"{secrets}/{name}"]).stdout == box.canary, "the control"
    assert inside.stdout == "content of the file\nready\nlate\n", inside
    assert how == "replaced" or "secrets have such names" in inside.stderr, inside


# ---- too much to look at ----


@pytest.mark.skipif(not gates.LONG, reason="fifty thousand files: only with SANDBOX_TEST_LONG=1")
def test_a_folder_too_large_to_search_is_allowed_in_parts(box, gate, secrets):
    for number in range(50001):
        os.mknod(f"{secrets}/sub/deep/{number}")
    script = cat(secrets, "file", "exact", "sub/below", "sub/environment", "sub/.netrc", "sub/deep/id_ed25519", ".env")
    inside, asked = run(box, gate, script, lambda event: deny() if event.get("secret") else approve(tree=secrets))
    assert inside.stdout.startswith("content of the file\ncontent of the exact one\ncontent below\n"), (inside, asked)
    assert box.canary not in inside.stdout


def test_a_folder_with_more_hidden_names_than_can_be_told_is_allowed_in_parts(box, gate, secrets):
    """They are hidden by a rule, and all of them are named to who mounts the folder."""
    for number in range(800):
        os.mknod(f"{secrets}/sub/deep/{'long' * 50}-{number}.key")
    hidden = box.identity.file(f"{secrets}/sub/deep/{'long' * 50}.key", box.canary)
    assert box.plain(["cat", hidden]).stdout == box.canary, "the control"
    inside, asked = run(box, gate, cat(secrets, "file", "sub/below", "sub/deep/id_ed25519.pub") + f"; cat {hidden}",
                        lambda event: approve(tree=secrets), "--blacklist", f"{secrets}/sub/deep/*.key")
    assert inside.stdout == "content of the file\ncontent below\ncontent of sub/deep/id_ed25519.pub\n", (inside, asked)
    assert len(asked) == 1, asked

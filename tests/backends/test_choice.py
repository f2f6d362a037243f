"""Choosing a back end: names, refusals, --weaken, the matrix, `wrap`."""

import json
import os
import re
import shutil

import pytest

import harness


@pytest.fixture
def plain_box(world, identity):
    made = harness.Box(world, identity)
    check = harness.LeakCheck(made)
    yield made
    problems = check.check()
    assert not problems, "\n".join(problems)


def sandbox(box, *words, **more):
    return box.plain([box.world.command, *words], **more)


# ---- bad input ----


def test_an_unknown_name(plain_box):
    result = sandbox(plain_box, "run", "--backend", "bwrp", "--", "touch", "made")
    assert result.exit == 125 and "bwrap" in result.stderr, result
    assert not os.path.exists(plain_box.path("made"))


def test_an_unknown_name_in_a_policy(plain_box):
    policy = plain_box.identity.file(plain_box.home("policy.yaml"), "version: 1\nbackend: bwrp\n")
    result = sandbox(plain_box, "run", "--static", "--policy", policy, "--", "touch", "made")
    assert result.exit == 125 and "bwrap" in result.stderr, result
    assert not os.path.exists(plain_box.path("made"))


@pytest.mark.parametrize("tool", ["bwrap", "firejail", "nsjail"])
def test_a_missing_tool(plain_box, tool):
    result = sandbox(plain_box, "run", "--static", "--backend", tool, "--", "/usr/bin/touch",
                     "made", env={"PATH": "/nowhere"})
    assert result.exit == 125 and f"{tool} is not installed" in result.stderr, result
    assert result.stderr.count("\n") == 2 and "fix:" in result.stderr, result
    assert not os.path.exists(plain_box.path("made"))


def pretended_bwrap(box, version):
    """A program that says its version, and writes down what it is asked to do."""
    tool = box.identity.file(box.home("tools/bwrap"), "#!/bin/sh\n"
                             f"test \"$1\" = --version && echo bubblewrap {version} && exit\n"
                             f"printf '%s\\n' \"$@\" > {box.path('words')}\n", 0o755)
    return {"PATH": os.path.dirname(tool) + ":/usr/bin:/bin"}


@pytest.mark.parametrize("version, said", [("0.4.1", "too old"), ("0.8.0", "overlays")])
def test_what_a_version_of_bwrap_lacks(plain_box, version, said):
    env = pretended_bwrap(plain_box, version)
    result = sandbox(plain_box, "run", "--static", "--backend", "bwrap", "--overlay", "sub", "--", "true",
                     env=env)
    assert result.exit == 125 and said in result.stderr and "fix:" in result.stderr, result
    assert not os.path.exists(plain_box.path("words"))


def test_overlays_of_a_newer_bwrap(plain_box):
    """Debian's has none, so these are words, from its manual."""
    env = pretended_bwrap(plain_box, "0.11.0")
    result = sandbox(plain_box, "run", "--static", "--backend", "bwrap", "--overlay", "sub", "--", "true",
                     env=env)
    with open(plain_box.path("words")) as written:
        words = written.read().split("\n")
    at = words.index("--overlay-src")
    folder = plain_box.path("sub")
    assert words[at + 1:at + 3] == [folder, "--overlay"] and words[at + 5] == folder, (words, result)
    upper, work = words[at + 3:at + 5]
    assert upper.endswith("/upper") and work.endswith("/work"), words
    assert os.path.dirname(upper) == os.path.dirname(work)
    refusal = sandbox(plain_box, "wrap", "--static", "--backend", "bwrap", "--policy",
                      plain_box.identity.file(plain_box.home("overlay.yaml"),
                                              f"version: 1\nfilesystem: {{overlay: ['{folder}']}}\n"),
                      "--", "true", env=env)
    assert refusal.exit == 125 and "overlays" in refusal.stderr and "fix:" in refusal.stderr, refusal
    for session in os.listdir(os.path.join(plain_box.identity.state, "sandbox/overlays")):
        sandbox(plain_box, "discard", session)


@pytest.mark.parametrize("options, words", [
    (["--mode=dynamic"], "dynamic mode"),
    (["--static", "--allow-network=example.org"], "listed hosts"),
    (["--static", "--overlay", "sub"], "overlays"),
    (["--static", "--disk", "10M"], "disk"),
], ids=["dynamic", "network", "overlay", "disk"])
def test_a_feature_it_does_not_have(plain_box, options, words):
    result = sandbox(plain_box, "run", *options, "--backend", "bwrap", "--", "touch", "made")
    assert result.exit == 125 and words in result.stderr and "fix:" in result.stderr, result
    assert result.stderr.count("\n") == 2, "one sentence and its fix"
    assert not os.path.exists(plain_box.path("made"))


def test_a_feature_it_does_not_have_as_json(plain_box):
    result = sandbox(plain_box, "run", "--mode=dynamic", "--json", "--backend", "bwrap", "--", "true")
    error = json.loads(result.stdout)["error"]
    assert result.exit == 125 and error["code"] == "unsupported" and "dynamic" in error["message"]


def test_weaken_says_what_is_lost(plain_box):
    result = sandbox(plain_box, "run", "--mode=dynamic", "--weaken", "--backend", "bwrap", "--", "echo", "ran")
    assert result.exit == 0 and result.stdout == "ran\n", result
    assert "WEAKENED" in result.stderr and "dynamic mode" in result.stderr, result


def test_weaken_cannot_be_silenced(plain_box):
    result = sandbox(plain_box, "run", "--mode=dynamic", "--weaken", "--quiet", "--backend", "bwrap",
                     "--", "true")
    assert "WEAKENED" in result.stderr, result


def test_weaken_gives_no_network_away(plain_box):
    result = sandbox(plain_box, "run", "--static", "--weaken", "--allow-network=example.org",
                     "--backend", "bwrap", "--", "true")
    assert result.exit == 125 and "listed hosts" in result.stderr, result


def test_detach_needs_the_native_engine(plain_box):
    result = sandbox(plain_box, "run", "--static", "--detach", "--backend", "bwrap")
    assert result.exit == 125 and "--detach" in result.stderr, result


# ---- the matrix ----


def test_the_matrix(plain_box):
    entries = json.loads(sandbox(plain_box, "backends", "--json").stdout)["backends"]
    names = [entry["name"] for entry in entries]
    assert names[0] == "native" and "bwrap" in names
    for entry in entries:
        assert entry["available"] or (entry["why"] and entry["fix"]), entry
        assert set(entry["features"].values()) <= {"yes", "no", "not here"}
        assert entry["features"].keys() == entries[0]["features"].keys()


def test_the_matrix_for_people(plain_box):
    result = sandbox(plain_box, "backends")
    assert result.exit == 0 and re.search(r"^ +native +available", result.stdout, re.M), result


def test_the_matrix_says_what_is_missing(plain_box):
    entries = json.loads(sandbox(plain_box, "backends", "--json",
                                 env={"PATH": "/nowhere"}).stdout)["backends"]
    bwrap = next(entry for entry in entries if entry["name"] == "bwrap")
    assert not bwrap["available"] and "not installed" in bwrap["why"] and bwrap["fix"]


# ---- wrap ----


def test_wrap_prints_words_that_run(plain_box):
    words = ["sh", "-c", 'printf "[%s]" "$@"; cat ~/.ssh/id_rsa; exit 9', "sh", "a b", "it's"]
    printed = sandbox(plain_box, "wrap", "--static", "--backend", "bwrap", "--", *words)
    assert printed.exit == 0 and printed.stdout.count("\n") == 1, printed
    result = plain_box.plain(["bash", "-c", printed.stdout])
    assert result.exit == 9 and result.stdout.startswith("[a b][it's]"), result
    assert plain_box.canary not in result.stdout


def test_wrapped_words_reserve_names_and_put_them_away(plain_box):
    """Protected names that are not there yet are among the files; what ends it removes them."""
    printed = sandbox(plain_box, "wrap", "--static", "--json", "--backend", "bwrap", "--", "sh", "-c",
                      "touch .cursor/x || echo reserved; mv .git/hooks away || echo pinned")
    answer = json.loads(printed.stdout)
    assert plain_box.path(".cursor") in [file["path"] for file in answer["files"] if file.get("folder")]
    text = sandbox(plain_box, "wrap", "--static", "--backend", "bwrap", "--", "sh", "-c",
                   "touch .cursor/x || echo reserved; mv .git/hooks away || echo pinned")
    result = plain_box.plain(["bash", "-c", text.stdout])
    assert result.stdout == "reserved\npinned\n", result
    assert not os.path.exists(plain_box.path(".cursor"))


def test_wrap_as_json(plain_box):
    printed = sandbox(plain_box, "wrap", "--static", "--json", "--backend", "bwrap", "--", "true")
    answer = json.loads(printed.stdout)
    assert answer["backend"] == "bwrap" and answer["argv"][0].endswith("bwrap"), answer
    assert answer["argv"][-1] == "true" and "--seccomp" in answer["argv"]
    assert any(fd.get("content_b64") for fd in answer["fds"]) and "env" in answer


def test_wrap_starts_nothing_and_makes_nothing(plain_box):
    before = set(os.listdir(plain_box.project))
    sandbox(plain_box, "wrap", "--static", "--backend", "bwrap", "--", "touch", "made")
    assert set(os.listdir(plain_box.project)) == before


@pytest.mark.parametrize("words, said", [
    (["wrap", "--backend", "bwrap"], "command"),
    (["wrap", "--", "true"], "--backend"),
    (["wrap", "--static", "--backend", "bwrap", "--open-files", "64", "--", "true"], "limits"),
])
def test_wrap_refuses(plain_box, words, said):
    result = sandbox(plain_box, *words)
    assert result.exit == 125 and said in result.stderr and "fix:" in result.stderr, result


# ---- documentation ----


def documentation():
    with open(os.path.join(harness.REPOSITORY, "docs", "BACKENDS.md")) as source:
        return source.read()


def test_the_documented_features_are_those_of_the_table(plain_box):
    entries = json.loads(sandbox(plain_box, "backends", "--json").stdout)["backends"]
    table = documentation().split("## Features")[1].split("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", table, re.M) == list(entries[0]["features"])


def test_the_documented_back_ends_are_those_of_the_table(plain_box):
    entries = json.loads(sandbox(plain_box, "backends", "--json").stdout)["backends"]
    sections = dict(re.findall(r"^### ([a-z]+)\n(.*?)(?=^### |\Z)",
                               documentation().split("## The back ends")[1], re.M | re.S))
    assert sections.keys() == {entry["name"] for entry in entries}
    for entry in entries:
        lacks = re.search(r"^Lacks: (.*)\.$", sections[entry["name"]], re.M).group(1)
        missing = {name for name, value in entry["features"].items() if value == "no"}
        assert set(re.findall(r"`([a-z-]+)`", lacks)) == missing, entry["name"]


# ---- arguments that are generated, not run ----

# Of nsjail.1, each with the number of its arguments; nothing else may be used.
NSJAIL_OPTIONS = {
    "--mode": 1, "--quiet": 0, "--chroot": 1, "--hostname": 1, "--cwd": 1, "--time_limit": 1,
    "--rlimit_as": 1, "--rlimit_core": 1, "--rlimit_cpu": 1, "--rlimit_fsize": 1,
    "--rlimit_nofile": 1, "--rlimit_nproc": 1, "--rlimit_stack": 1, "--disable_clone_newnet": 0,
    "--skip_setsid": 0, "--env": 1, "--mount": 1, "--bindmount": 1, "--bindmount_ro": 1,
    "--exec_file": 1,
}


def nsjail_words(box, *options, command=("true",)):
    printed = sandbox(box, "wrap", "--static", "--json", "--weaken", "--backend", "nsjail", *options,
                      "--", *command)
    assert printed.exit == 0, printed
    words = json.loads(printed.stdout)["argv"][1:]
    found = []
    while words[0] != "--":
        count = NSJAIL_OPTIONS[words[0]]
        found.append((words[0], *words[1:1 + count]))
        words = words[1 + count:]
    assert words[1:] == list(command)
    return found


def test_nsjail_arguments_are_those_of_its_manual(plain_box):
    found = nsjail_words(plain_box)
    assert ("--chroot", "/") in found and ("--time_limit", "0") in found
    assert ("--bindmount", plain_box.project) in found
    assert ("--bindmount_ro", plain_box.path(".git/config")) in found
    assert ("--bindmount_ro", "/dev/null:" + plain_box.path(".env")) in found
    assert ("--mount", f"none:{plain_box.home('.ssh')}:tmpfs:mode=0") in found
    assert ("--cwd", plain_box.project) in found
    assert not any(word[0] == "--disable_clone_newnet" for word in found)
    # A read-only root first, then what is writable in it, then what is protected in that.
    order = [found.index(row) for row in (("--chroot", "/"), ("--bindmount", plain_box.project),
                                          ("--bindmount_ro", plain_box.path(".git/config")))]
    assert order == sorted(order)


def test_nsjail_refuses_names_that_it_would_read_otherwise(plain_box):
    plain_box.identity.folder(plain_box.home("a:b"))
    result = sandbox(plain_box, "wrap", "--static", "--weaken", "--backend", "nsjail", "--rw",
                     plain_box.home("a:b"), "--", "true")
    assert result.exit == 125 and "a:b" in result.stderr and "fix:" in result.stderr, result


def test_nsjail_is_not_installed(plain_box):
    result = sandbox(plain_box, "run", "--static", "--backend", "nsjail", "--", "true",
                     env={"PATH": "/usr/bin:/bin"})
    assert result.exit == 125 and "nsjail is not installed" in result.stderr, result


def test_firejail_refuses_names_that_it_would_read_otherwise(plain_box):
    plain_box.identity.folder(plain_box.home("a,b"))
    result = sandbox(plain_box, "wrap", "--static", "--weaken", "--backend", "firejail", "--rw",
                     plain_box.home("a,b"), "--", "true")
    assert result.exit == 125 and "a,b" in result.stderr and "fix:" in result.stderr, result


def test_landlock_words_run(plain_box):
    plain_box.identity.folder(plain_box.home("temporary"), 0o700)
    env = {"TMPDIR": plain_box.home("temporary")}
    printed = sandbox(plain_box, "wrap", "--static", "--weaken", "--backend", "landlock", "--", "sh",
                      "-c", "cat ~/.ssh/id_rsa; echo x > $TMPDIR/x && cp $TMPDIR/x made; exit 9",
                      env=env)
    result = plain_box.plain(["bash", "-c", printed.stdout], env=env)
    assert result.exit == 9 and plain_box.canary not in result.stdout, result
    assert os.path.exists(plain_box.path("made"))


NESTED = {
    "native": lambda box: [box.world.command, "run", "--static", "--quiet", "--"],
    "container": lambda box: ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev",
                              "--proc", "/proc", "--tmpfs", "/tmp", "--bind", box.project,
                              box.project, "--bind", box.identity.state, box.identity.state,
                              "--bind", box.identity.runtime, box.identity.runtime,
                              "--cap-drop", "ALL", "--chdir", box.project, "--"],
}


@pytest.mark.parametrize("outer", sorted(NESTED))
def test_landlock_works_inside_another_sandbox(plain_box, outer):
    """Without capabilities, namespaces or mounts of its own."""
    inner = [plain_box.world.command, "run", "--static", "--weaken", "--backend", "landlock", "--",
             "sh", "-c", "cat ~/.ssh/id_rsa; echo made > made; grep CapEff /proc/self/status; exit 9"]
    result = plain_box.plain([*NESTED[outer](plain_box), *inner])
    assert result.exit == 9 and plain_box.canary not in result.stdout, result
    assert "CapEff:\t0000000000000000" in result.stdout, result
    assert os.path.exists(plain_box.path("made"))


def test_who_chooses_an_engine_is_told_that_it_cannot_ask(box):
    """And nobody who says that he knows."""
    if not shutil.which("bwrap"):
        pytest.skip("bwrap is not installed")
    for options, said in (([], 1), (["--static"], 0)):
        result = box.plain([box.world.command, "run", "--backend", "bwrap", *options, "--", "true"])
        assert result.exit == 0 and result.stderr.count("bwrap cannot ask") == said, result

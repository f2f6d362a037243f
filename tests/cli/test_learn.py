"""sandbox learn: what is recorded, what is proposed, what stays denied, and that the proposal is
enough."""

import os
import shutil

import pytest

from sessions import sandbox


class Ground:
    """Files outside of the project that no rule covers, some of them secret."""

    def __init__(self, box, gate):
        self.box = box
        self.gate = ["--gate", gate]
        self.root = os.path.join(box.world.base, "learn-" + box.identity.name)
        for name in ("sdk/a", "sdk/b", "sdk/c", "sdk/deep/d", "other/one", "other/two"):
            box.identity.file(os.path.join(self.root, name), f"content of {name}\n")
        self.mine = box.home(".config/sandbox/policy.yaml")

    def path(self, name):
        return os.path.join(self.root, name)

    def learn(self, *words, **more):
        return sandbox(self.box, "learn", *self.gate, *words, **more)

    def dynamic(self, *argv):
        return sandbox(self.box, "run", "--mode", "dynamic", *self.gate, "--", *argv)


def proposed(stderr):
    return [line.split("#")[0].strip(" -") for line in stderr.splitlines() if line.startswith("    - ")]


@pytest.fixture(params=["fuse", "notify"])
def ground(request, box):
    made = Ground(box, request.param)
    probe = made.dynamic("true")
    if probe.exit == 125:
        pytest.skip(f"no such gate here: {probe.stderr}")
    yield made
    shutil.rmtree(made.root)


def test_reads_are_recorded_and_generalised(ground):
    words = [ground.path(name) for name in ("sdk/a", "sdk/b", "sdk/c", "other/one")]
    result = ground.learn("--", "cat", *words)
    assert result.exit == 0 and result.stdout.count("content of") == 4, result
    assert proposed(result.stderr) == [ground.path("other/one"), ground.path("sdk")], result
    assert not os.path.exists(ground.mine)


def test_the_proposal_is_enough(ground):
    """What was learned runs without a question, and nothing else does."""
    words = [ground.path(name) for name in ("sdk/a", "sdk/b", "sdk/c", "other/one")]
    before = ground.dynamic("cat", *words)
    assert before.stdout == "", "the control: nothing of it is allowed before"
    result = ground.learn("--write", "--", "cat", *words)
    assert result.exit == 0 and "written:" in result.stderr, result
    assert result.stderr.index("version: 1") < result.stderr.index("written:"), "shown, then stored"
    after = ground.dynamic("cat", *words, ground.path("sdk/deep/d"))
    assert after.stdout.count("content of") == 5, after
    assert "content" not in ground.dynamic("cat", ground.path("other/two")).stdout


def test_secrets_stay_hidden(ground):
    secrets = [ground.box.home(".ssh/id_rsa"), ground.box.home(".aws/credentials")]
    assert ground.box.canary in ground.box.plain(["cat", *secrets]).stdout, "the control"
    result = ground.learn("--", "cat", *secrets)
    assert result.exit == 1 and ground.box.canary not in result.stdout, result
    assert proposed(result.stderr) == []


def test_what_is_called_like_a_secret_is_not_read(ground):
    """Beside it others are: the control."""
    ground.box.identity.file(ground.path("other/.env"), ground.box.canary)
    words = [ground.path("other/.env"), ground.path("other/one")]
    assert ground.box.canary in ground.box.plain(["cat", *words]).stdout, "the control"
    result = ground.learn("--", "cat", *words)
    assert result.stdout == "content of other/one\n", result
    assert proposed(result.stderr) == [ground.path("other/one")], result
    assert f"{words[0]}: denied" in result.stderr, result


@pytest.mark.parametrize("reads", ["cat {0}/a {0}/b {0}/c", "ls -A {0}"])
def test_what_is_called_like_a_secret_is_hidden_in_a_proposed_folder(ground, reads):
    secrets = [ground.path(name) for name in ("sdk/.env", "sdk/deep/server.env")]
    for path in secrets:
        ground.box.identity.file(path, ground.box.canary)
    ground.box.identity.file(ground.path("sdk/.env.example"), "an example\n")
    result = ground.learn("--write", "--", "sh", "-c", reads.format(ground.path("sdk")))
    assert proposed(result.stderr) == [ground.path("sdk"), *secrets], result
    assert "  hide:" in result.stderr and "a secret, by its name" in result.stderr, result
    after = ground.dynamic("cat", *secrets, ground.path("sdk/a"), ground.path("sdk/.env.example"))
    assert after.stdout == "content of sdk/a\nan example\n", after


def test_writes_outside_stay_refused(ground):
    target = ground.path("sdk/made")
    result = ground.learn("--", "sh", "-c", f"echo x > {target}; echo y > inside; cat inside")
    assert result.stdout == "y\n" and not os.path.exists(target), result
    assert f"{target}: a write" in result.stderr, result
    assert proposed(result.stderr) == []


def test_a_home_folder_is_never_proposed(ground):
    names = ["one", "two", "three", "four"]
    for name in names:
        ground.box.identity.file(ground.box.home(name), name)
    home = ground.box.home()
    result = ground.learn("--", "sh", "-c", f"ls {home} >/dev/null; cd {home}; cat {' '.join(names)}")
    assert result.stdout == "".join(names), result
    if "fuse" in ground.gate:  # the other one shows folders above what is allowed without asking
        assert f"{home}: listed, but too much to allow as a whole; its names alone: filesystem.list\n" in result.stderr, result
    assert set(proposed(result.stderr)) >= {f'"~/{name}"' for name in names}, result
    assert '"~"' not in result.stderr and f"- {home} " not in result.stderr


def test_output_and_exit_code(ground):
    target = ground.box.path("proposal.yaml")
    result = ground.learn("--output", target, "--", "sh", "-c", f"cat {ground.path('sdk/a')}; exit 3")
    assert result.exit == 3 and result.stdout == "content of sdk/a\n", result
    with open(target) as proposal:
        assert "# The command has failed (status 3): it may need more than this.\n" in proposal
    assert "failed" not in ground.learn("--", "true").stderr
    assert "version: 1" not in result.stderr
    checked = sandbox(ground.box, "policy", "check", target)
    assert checked.exit == 0, checked
    with open(target) as source:
        assert ground.path("sdk/a") in source.read()


def test_write_to_the_project(ground):
    policy = ground.box.path(".sandbox/policy.yaml")
    result = ground.learn("--write", "--project", "--", "cat", ground.path("sdk/a"))
    assert result.exit == 0 and "sandbox policy trust" in result.stderr, result
    with open(policy) as source:
        assert ground.path("sdk/a") in source.read()


def test_hostile_names_are_only_names(ground):
    name = ground.path("x\n    - /\n#\033[2J")
    ground.box.identity.file(name, "content")
    result = ground.learn("--write", "--", "cat", name)
    assert result.stdout == "content" and "\033" not in result.stderr, result
    rules = sandbox(ground.box, "policy", "diff", "built-in", "user").stdout.splitlines()
    assert len(rules) == 1 and rules[0].startswith("+ filesystem.read: "), rules
    assert ground.dynamic("cat", name).stdout == "content"


@pytest.mark.parametrize("words, said", [
    ([], "learn needs a command"), (["--project", "--", "true"], "add --write"),
])
def test_bad_words(ground, words, said):
    result = ground.learn(*words)
    assert result.exit == 125 and said in result.stderr, result


def test_a_command_that_does_not_exist(ground):
    assert ground.learn("--", "no-such-command").exit == 127

"""Generated Seatbelt profiles, evaluated by a small interpreter of their language (sbpl.scm, run by
Guile) against tables of operations: what must be allowed is, what must not be is not."""

import itertools
import json
import os
import pathlib
import random
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HOME, PROJECT, TMP = "/Users/ann", "/Users/ann/shop", "/private/var/folders/zz/T"

pytestmark = pytest.mark.skipif(not shutil.which("guile"), reason="guile is not installed")


@pytest.fixture(scope="session")
def program():
    folder = os.environ.get("SANDBOX_BUILD")
    found = [pathlib.Path(folder)] if folder else sorted(
        ROOT.glob("build*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for build in found:
        if (build / "tests/seatbelt/seatbelt-profile").exists():
            return build / "tests/seatbelt/seatbelt-profile"
    raise AssertionError("no build found: set SANDBOX_BUILD")


class Profile:
    """One policy: its profile and what it answers."""

    def __init__(self, program, folder, policy, project=PROJECT, protected=()):
        self.program, self.project = program, project
        self.policy = folder / "policy.yaml"
        self.policy.write_text("version: 1\n" + policy)
        made = self.call("show", *protected)
        assert made.returncode == 0, made.stderr
        parameters, self.text = made.stdout.split("\n\n", 1)
        self.parameters = parameters.splitlines()
        self.file = folder / "profile.sb"
        self.file.write_text(self.text)

    def call(self, verb, *more, **options):
        return subprocess.run([self.program, verb, self.policy, self.project, HOME, TMP, *more],
                              capture_output=True, text=True, **options)

    def ask(self, questions):
        """Answers to (operation, kind, value), in order."""
        lines = "".join("\t".join(question) + "\n" for question in questions)
        done = subprocess.run(
            ["guile", "--no-auto-compile", HERE / "sbpl.scm", self.file, *self.parameters],
            input=lines, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        answers = done.stdout.split()
        assert len(answers) == len(questions)
        return answers

    def check(self, *expected):
        """Each: answer, operation, kind, value."""
        answers = self.ask([question for _, *question in expected])
        wrong = [(got, *row) for got, row in zip(answers, expected) if got != row[0]]
        assert not wrong, "got, expected, question: " + repr(wrong)

    def decide(self, paths):
        """What the policy itself says: (read, write) for each path."""
        done = self.call("decide", input="".join(path + "\n" for path in paths))
        return [tuple(line.split()) for line in done.stdout.splitlines()]


@pytest.fixture
def profile(program, tmp_path):
    return lambda policy="", **more: Profile(program, tmp_path, policy, **more)


LEVELS = ("restrictive", "permissive")


def level(name):
    return f"seatbelt: {{profile: {name}}}\n"


def files(answer, operation, *paths):
    return [(answer, operation, "path", path) for path in paths]


# ---- what every profile says ----


@pytest.mark.parametrize("name", LEVELS)
def test_files(profile, name):
    profile(level(name)).check(
        *files("allow", "file-read-data", "/usr/bin/env", PROJECT, PROJECT + "/main.c",
               "/System/Library/x", HOME + "/notes.txt", HOME + "/.cargo/bin/cargo"),
        *files("allow", "file-write-create", PROJECT + "/new", PROJECT + "/a/b", TMP + "/x"),
        *files("allow", "file-write-data", PROJECT + "/main.c", "/dev/null", "/dev/ttys001"),
        *files("allow", "file-write-unlink", PROJECT + "/main.c", TMP + "/x"),
        *files("deny", "file-write-data", HOME + "/.zshrc", "/etc/hosts", "/private/etc/hosts",
               PROJECT + "-evil/x", "/Users/ann/shopping", "/usr/local/bin/x", "/private/tmp/x",
               "/dev/disk0", "/dev/bpf0"),
        *files("deny", "file-write-create", HOME + "/x", "/x", TMP + "x"),
        *files("deny", "file-link", PROJECT + "/main.c", HOME + "/.zshrc", "/usr/bin/env"),
        *files("deny", "file-clone", PROJECT + "/main.c", HOME + "/.ssh/id"),
        *files("deny", "file-write-unlink", PROJECT, TMP),
    )


@pytest.mark.parametrize("name", LEVELS)
def test_secrets(profile, name):
    secrets = (".ssh", ".ssh/id_ed25519", ".aws/credentials", ".gnupg/x", ".netrc", ".zsh_history",
               "Library/Keychains/login.keychain-db", "Library/Cookies/x", ".kube/config",
               "Library/Application Support/Google/Chrome/Default/Cookies")
    in_project = (".env", "sub/.env", ".env.local", "a/b/production.env", "x/id_rsa", ".ENV",
                  "sub/.Env.Local")
    profile(level(name)).check(
        *[row for path in secrets for operation in ("file-read-data", "file-read-metadata",
                                                    "file-write-data", "file-clone")
          for row in files("deny", operation, f"{HOME}/{path}")],
        *[row for path in in_project for operation in ("file-read-data", "file-write-unlink",
                                                       "file-write-create", "file-link")
          for row in files("deny", operation, f"{PROJECT}/{path}")],
        *files("deny", "file-read-data", "/etc/sudoers", "/private/etc/sudoers",
               "/private/etc/ssh/ssh_host_rsa_key", "/etc/ssh/ssh_host_ed25519_key"),
        *files("allow", "file-read-data", f"{PROJECT}/.env.example", f"{PROJECT}/a/x.sample.env",
               f"{PROJECT}/.environment", f"{PROJECT}/env", f"{HOME}/.sshx", "/etc/ssh/ssh_config"),
        *files("allow", "file-write-data", f"{PROJECT}/.env.example"),
    )


@pytest.mark.parametrize("name", LEVELS)
def test_protected_names(profile, name):
    names = (".git/hooks/pre-commit", ".git/hooks", ".git/config", ".vscode/tasks.json", ".mcp.json",
             ".claude/settings.json", ".envrc", ".sandbox/policy.yaml",
             # as a file system that does not tell capitals would take them
             ".GIT/hooks/x", ".git/Hooks/x", ".VSCode/tasks.json", ".MCP.json")
    profile(level(name)).check(
        *[row for path in names for operation in ("file-write-create", "file-write-data",
                                                  "file-write-unlink", "file-link")
          for row in files("deny", operation, f"{PROJECT}/{path}")],
        *files("allow", "file-read-data", *[f"{PROJECT}/{path}" for path in names]),
        # moving the folder above would take it out of the rule
        *files("deny", "file-write-unlink", PROJECT + "/.git"),
        *files("allow", "file-write-create", PROJECT + "/.git/objects/x", PROJECT + "/.gitignore",
               PROJECT + "/.git/index", PROJECT + "/.vscodex/y"),
        *files("allow", "file-write-unlink", PROJECT + "/.git/index.lock", PROJECT + "/src"),
    )


def test_objects_that_the_plan_found(profile):
    """Nested repositories are found on the disk, not by a pattern."""
    nested = PROJECT + "/deps/lib/.git/hooks"
    profile(protected=[nested]).check(
        *files("deny", "file-write-create", nested + "/pre-commit"),
        *files("deny", "file-write-unlink", PROJECT + "/deps", PROJECT + "/deps/lib",
               PROJECT + "/deps/lib/.git"),
        *files("allow", "file-write-data", PROJECT + "/deps/lib/x.c"),
        *files("allow", "file-write-unlink", PROJECT + "/deps/other"))


@pytest.mark.parametrize("name", LEVELS)
def test_processes_and_services(profile, name):
    profile(level(name)).check(
        ("allow", "process-fork"), ("allow", "process-exec", "path", "/bin/sh"),
        ("allow", "sysctl-read"), ("allow", "pseudo-tty"),
        ("allow", "signal", "target", "self"), ("allow", "signal", "target", "same-sandbox"),
        ("deny", "signal", "target", "others"),
        ("deny", "appleevent-send"), ("deny", "job-creation"),
        ("allow", "mach-lookup", "service", "com.apple.system.logger"),
        *[("deny", "mach-lookup", "service", service) for service in (
            "com.apple.SecurityServer", "com.apple.securityd.xpc", "com.apple.pasteboard.1",
            "com.apple.coreservices.launchservicesd")],
    )


def test_restrictive_denies_what_permissive_allows(profile):
    rows = [("mach-lookup", "service", "com.example.unknown"), ("iokit-open",),
            ("process-info-pidinfo", "target", "others"), ("mach-register",)]
    assert profile(level("restrictive")).ask(rows) == ["deny"] * len(rows)
    assert profile(level("permissive")).ask(rows) == ["allow"] * len(rows)


# ---- network: closed, proxied, open ----

NETWORK = {
    "closed": "network: {mode: none}\n",
    "proxied": "network: {mode: filtered, http_proxy: 'http://127.0.0.1:8080', "
               "socks_proxy: 'localhost:1080'}\n",
    "open": "network: {mode: full}\n",
}


@pytest.mark.parametrize("name, network", itertools.product(LEVELS, NETWORK))
def test_network(profile, name, network):
    proxied, is_open = network == "proxied", network == "open"

    def answer(yes):
        return "allow" if yes else "deny"

    profile(level(name) + NETWORK[network]).check(
        (answer(is_open), "network-outbound", "remote", "93.184.216.34:443"),
        (answer(is_open), "network-outbound", "remote", "localhost:5432"),
        (answer(proxied or is_open), "network-outbound", "remote", "localhost:8080"),
        (answer(proxied or is_open), "network-outbound", "remote", "localhost:1080"),
        (answer(is_open), "network-outbound", "remote", "93.184.216.34:8080"),
        (answer(is_open), "network-outbound", "socket", "/private/var/run/mDNSResponder"),
        ("deny", "network-outbound", "socket", "/var/run/docker.sock"),
        ("deny", "network-outbound", "socket", HOME + "/.ssh/agent"),
        ("deny", "network-bind", "local", "localhost:3000"),
        ("deny", "network-inbound", "local", "*:3000"),
    )


@pytest.mark.parametrize("name", LEVELS)
def test_sockets_and_local_binding(profile, name):
    profile(level(name) + "network: {allow_local_binding: true, unix_sockets: [~/.run/agent]}\n").check(
        ("allow", "network-bind", "local", "localhost:3000"),
        ("allow", "network-inbound", "local", "localhost:3000"),
        ("allow", "network-outbound", "remote", "localhost:3000"),
        ("deny", "network-outbound", "remote", "10.0.0.1:3000"),
        ("allow", "network-outbound", "socket", HOME + "/.run/agent"),
        ("deny", "network-outbound", "socket", HOME + "/.run/agent2"))


@pytest.mark.parametrize("proxy, reason", [
    ("http://proxy.example:8080", "not a port of this machine"),
    ("10.0.0.1:1", "not a port of this machine"),
    ("localhost:x", r"policy.yaml:2:39: .* is not HOST:PORT"),
    ("localhost:99999", r"policy.yaml:2:39: .* is not HOST:PORT")])
def test_a_proxy_elsewhere_is_refused(program, tmp_path, proxy, reason):
    with pytest.raises(AssertionError, match=reason):
        Profile(program, tmp_path, f"network: {{mode: filtered, http_proxy: '{proxy}'}}\n")


def test_filtered_without_a_proxy_is_refused(program, tmp_path):
    with pytest.raises(AssertionError, match="needs a proxy that filters"):
        Profile(program, tmp_path, "network: {mode: filtered}\n")


def test_overlays_are_refused(program, tmp_path):
    with pytest.raises(AssertionError, match="no overlay"):
        Profile(program, tmp_path, "filesystem: {overlay: [/opt/x]}\n")


# ---- folders, patterns, quoting ----


def test_more_folders_than_five(profile):
    folders = [f"/opt/tool{number}" for number in range(12)]
    made = profile("filesystem: {write: [%s]}\n" % ", ".join(folders))
    assert sum(word.startswith("WRITE_DIR_") for word in made.parameters) == 12
    made.check(*files("allow", "file-write-create", *[folder + "/x" for folder in folders]),
               *files("deny", "file-write-unlink", *folders),
               *files("deny", "file-write-create", "/opt/tool99/x", "/opt/tool1evil", "/opt/x"))


def test_the_most_specific_rule_decides(profile):
    profile("""filesystem:
  write: [/srv/data, /srv/data/ro/rw, "~/.ssh/known_hosts"]
  read: [/srv/data/ro, vendor, "~/.aws/config", "a/.env"]
  hide: [/srv/data/ro/secret, "**/*.key", "/srv/**/private"]
""").check(
        *files("allow", "file-write-data", "/srv/data/x", "/srv/data/ro/rw/x",
               HOME + "/.ssh/known_hosts"),
        *files("deny", "file-write-data", "/srv/data/ro/x", PROJECT + "/vendor/x.c"),
        *files("allow", "file-read-data", "/srv/data/ro/x", PROJECT + "/vendor/x.c",
               HOME + "/.aws/config", PROJECT + "/a/.env", HOME + "/.ssh/known_hosts"),
        *files("deny", "file-read-data", "/srv/data/ro/secret/x", HOME + "/.ssh/id_rsa",
               HOME + "/.aws/credentials", PROJECT + "/vendor/my.key", PROJECT + "/x/y.key",
               "/srv/data/private", "/srv/data/ro/private/x", "/srv/data/ro/rw/a/private/x",
               PROJECT + "/b/.env"),
        # a read-only folder in a writable place stays where it is
        *files("deny", "file-write-unlink", "/srv/data/ro", PROJECT + "/vendor"),
    )


def test_listed_names_change_nothing(profile):
    """They are for the gate of dynamic mode."""
    profile("filesystem: {list: [/srv/closed/in, ., ~], hide: [/srv/closed], read: [/srv/closed/shown]}\n").check(
        *files("deny", "file-read-data", "/srv/closed/x", "/srv/closed/in", HOME + "/.ssh/id_rsa"),
        *files("allow", "file-read-data", "/srv/closed/shown/x"),
        *files("allow", "file-write-data", PROJECT + "/main.c"))


def test_unprotect(profile):
    profile("""filesystem:
  unprotect: [.git/config, .git/hooks/pre-commit]
  protect: [Makefile, "**/*.lock"]
""").check(
        *files("allow", "file-write-data", PROJECT + "/.git/config",
               PROJECT + "/.git/hooks/pre-commit", PROJECT + "/x/Makefile"),
        *files("deny", "file-write-data", PROJECT + "/.git/hooks/post-commit", PROJECT + "/Makefile",
               PROJECT + "/makefile", PROJECT + "/a/yarn.lock", PROJECT + "/yarn.LOCK"),
        *files("allow", "file-read-data", PROJECT + "/a/yarn.lock"))


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a b", "a(b)", "a;b", "a'b", "ä", "a.b", "a+b", "{a}",
                                  "a|b", "^a$", '") (allow default) ("'])
def test_odd_names(profile, name):
    """As a project, as a literal path and in a pattern: never more than that name."""
    escaped = name.replace("\\", "\\\\").replace("$", "\\$")  # for a pattern
    escaped = escaped.replace("\\", "\\\\").replace('"', '\\"')  # for YAML
    project = "/Users/ann/" + name
    made = profile(f'filesystem: {{write: ["/opt/{escaped}"], hide: ["/srv/{escaped}/*.x"]}}\n',
                   project=project)
    made.check(*files("allow", "file-write-create", project + "/x", f"/opt/{name}/x"),
               *files("deny", "file-write-create", project + "x", "/opt/a", "/opt/ab", "/opt/aab",
                      "/x", project + "/.git/hooks/x"),
               *files("deny", "file-read-data", f"/srv/{name}/1.x", project + "/.env"),
               *files("allow", "file-read-data", f"/srv/{name}/1.y", "/srv/axb/1.x"))


def test_patterns(profile):
    profile(r"""filesystem:
  hide: ["/d/a?c", "/d/[abc]x", "/d/[!0-9]y", "/d/\\*z", "/d/**/deep/*.k", "/d/[]^-]q", "/d/[a-c-]r"]
""").check(
        *files("deny", "file-read-data", "/d/abc", "/d/aéc", "/d/ax", "/d/AX", "/d/qy", "/d/éy",
               "/d/*z", "/d/deep/1.k", "/d/x/y/deep/1.k", "/d/]q", "/d/^q", "/d/-q", "/d/br",
               "/d/-r", "/d/abc/below"),
        *files("allow", "file-read-data", "/d/ac", "/d/a/c", "/d/dx", "/d/1y", "/d/xz", "/d/zz",
               "/d/deep/x/1.k", "/d/deepx/1.k", "/d/xdeep/1.k", "/d/aq", "/d/dr", "/d/abcd"))


def test_against_the_policy_itself(profile):
    """Random rules, random paths: the profile is never looser than the policy, and where no two
    patterns compete, the same."""
    source = random.Random(20261115)
    names = ["a", "b", "c", "x.key", ".env"]
    patterns = ["/srv/a", "/srv/a/b", "/srv/a/b/c", "/srv/b", "/srv/c/a", "/srv/a/c/b", "a", "a/b"]
    globs = ["/srv/*/b", "/srv/**/c", "/srv/a/**/x.key", "**/x.key", "/srv/*"]
    paths = sorted({"/".join([root, *source.choices(names, k=source.randint(0, 5))])
                    for root in ("/srv", PROJECT) for _ in range(60)})
    looser = stricter = 0
    for _ in range(8):
        rules = {kind: source.sample(patterns, source.randint(0, 3))
                 for kind in ("read", "write", "hide")}
        rules[source.choice(["read", "hide", "write"])].append(source.choice(globs))
        made = profile("filesystem: {%s}\n" % ", ".join(
            f"{kind}: [{', '.join(repr(item) for item in items)}]" for kind, items in rules.items()))
        answers = iter(made.ask([(operation, "path", path) for path in paths
                                 for operation in ("file-read-data", "file-write-data")]))
        for path, (read, write) in zip(paths, made.decide(paths)):
            for wanted, got in ((read, next(answers)), (write, next(answers))):
                looser += wanted == "deny" and got == "allow"
                stricter += wanted == "allow" and got == "deny"
                assert not looser, f"looser than the policy: {path} {rules}"
    assert stricter < len(paths), "patterns that compete are rare"


def test_the_interpreter_is_strict(profile):
    """A profile that a Mac would refuse is refused here, or this suite would prove nothing."""
    made = profile()
    for bad in ("(allow file-raed*)", "(allow file-read* (subpth \"/\"))", "(deny)",
                "(allow network-outbound (remote ip \"10.0.0.1:80\"))", "(allow file-read*",
                "(allow file-read* (subpath (param \"NOPE\")))"):
        made.file.write_text(made.text + bad + "\n")
        with pytest.raises(AssertionError):
            made.ask([("file-read-data", "path", "/x")])
    made.file.write_text(made.text)
    assert made.ask([("file-read-data", "path", "/x")]) == ["allow"]


def test_without_the_secrets_rules_the_test_would_fail(profile):
    """The positive control: take the rules about places away, and secrets are readable."""
    made = profile()
    made.file.write_text(made.text.split("; places:")[0])
    assert made.ask([("file-read-data", "path", HOME + "/.ssh/id_rsa"),
                     ("file-read-data", "path", PROJECT + "/.env")]) == ["allow", "allow"]


# ---- the back end ----


@pytest.fixture(scope="session")
def sandbox(program):
    return os.environ.get("SANDBOX") or str(program.parents[2] / "src/cli/sandbox")


@pytest.fixture
def wrap(sandbox, tmp_path):
    """`sandbox wrap --backend seatbelt`, in a project that is not a repository."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home/shop").mkdir()

    def run(*words, verb="wrap", policy="", **more):
        (tmp_path / "policy.yaml").write_text("version: 1\n" + policy)
        return subprocess.run(
            [sandbox, verb, "--backend", "seatbelt", "--policy", tmp_path / "policy.yaml", *words],
            capture_output=True, text=True, cwd=tmp_path / "home/shop",
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "TMPDIR": "/var/tmp"},
            **more)

    return run


def test_it_needs_a_mac(wrap):
    result = wrap("--", "true", verb="run")
    assert result.returncode == 125 and "needs macOS" in result.stderr and "fix: " in result.stderr


def test_words(wrap, tmp_path):
    answer = json.loads(wrap("--json", "--", "echo", "a b", "$(x)").stdout)
    argv = answer["argv"]
    assert argv[0] == "/usr/bin/sandbox-exec"
    assert argv[argv.index("--") + 1:] == ["echo", "a b", "$(x)"]
    assert f"TARGET_DIR={tmp_path}/home/shop" in argv and "TMP_DIR=/var/tmp" in argv
    assert "TMPDIR=/var/tmp" in answer["env"]
    assert argv[argv.index("-p") + 1].startswith("(version 1)\n(deny default)\n")
    assert answer["files"] == []


def test_the_shell_text_says_the_same(wrap):
    """What it prints for a shell, run with the shell's own printf in the place of env: Linux, unlike macOS,
    starts no program with a word as long as the profile."""
    text = wrap("--", "echo", "it's").stdout
    assert text.startswith("env -i "), text[:80]
    done = subprocess.run(["bash"], input=text.replace("env", "printf '%s\\0'", 1),
                          capture_output=True, text=True)
    argv = json.loads(wrap("--json", "--", "echo", "it's").stdout)["argv"]
    words = done.stdout.split("\0")[:-1]
    assert words[words.index(argv[0]):] == argv, done.stderr


def test_proxies_are_named_to_the_command(wrap):
    policy = "network: {mode: filtered, http_proxy: 'localhost:8080', socks_proxy: '127.0.0.1:1080'}\n"
    environment = json.loads(wrap("--json", "--", "true", policy=policy).stdout)["env"]
    for name in ("HTTP_PROXY=http://127.0.0.1:8080", "https_proxy=http://127.0.0.1:8080",
                 "ALL_PROXY=socks5://127.0.0.1:1080", "NO_PROXY=localhost,127.0.0.1,::1"):
        assert name in environment


def test_a_custom_profile(wrap, tmp_path):
    mine = '(version 1)\n(allow default) ; "mine"\n'
    (tmp_path / "home/mine.sb").write_text(mine)
    answer = json.loads(wrap("--json", "--", "true", policy="seatbelt: {custom_profile: ~/mine.sb}\n").stdout)
    assert answer["argv"][answer["argv"].index("-p") + 1] == mine
    assert any(word.startswith("TARGET_DIR=") for word in answer["argv"])
    result = wrap("--", "true", policy="seatbelt: {custom_profile: ~/nosuch.sb}\n")
    assert result.returncode == 125 and "nosuch.sb" in result.stderr, result


@pytest.mark.parametrize("words, missing", [(["--memory", "1G"], "memory limit"),
                                            (["--no-debug"], "ptrace")])
def test_what_it_lacks_is_refused(wrap, words, missing):
    result = wrap(*words, "--", "true")
    assert result.returncode == 125 and missing in result.stderr, result

"""Real programs that know nothing of a proxy: each reaches its server by name, and is told by its
own means that another name is not to be had."""

import ctypes
import dataclasses
import json
import os
import shutil
import subprocess
import tempfile

import pytest

import gates
from world import HERE

CLONE_NEWNET = 0x40000000
ADDRESS = "203.0.113.20"
ALLOWED, DENIED = "programs.test", "denied-programs.test"  # both are that address

UNSET = "unset HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy\n"


@dataclasses.dataclass
class Program:
    """`run` is shell with $HOST in it: prints `says` if that may be reached, else fails with `error`.
    A program that is slow to start may take both hosts at once."""
    name: str
    run: str
    says: str
    error: str
    needs: str = ""
    once: bool = False


# The commands of one line; git, which has to do more, follows.
JAVA = """
import java.net.URI;
import java.net.http.*;

public class Fetch {
  public static void main(String[] hosts) throws Exception {
    for (String host : hosts) {
      try {
        HttpRequest request = HttpRequest.newBuilder(URI.create("http://" + host + ":8081/hello")).build();
        System.out.print(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body());
      } catch (java.io.IOException error) {
        Throwable cause = error;
        while (cause.getCause() != null) cause = cause.getCause();
        System.err.println(cause);
      }
    }
  }
}
"""
FETCH = "fetch(`http://${process.argv[1]}:8081/hello`).then(r => r.text()).then(t => console.log(t))"

# Clones, changes something, pushes it to a branch of its own, and looks whether it is there.
GIT = """
cd "$(mktemp -d)" && export HOME=$PWD GIT_TERMINAL_PROMPT=0
git clone -q "$URL" clone && cd clone && cat README && echo more >more && git add more &&
git -c user.name=t -c user.email=t@example.org commit -q -m more &&
git push -q origin "HEAD:refs/heads/$BRANCH" && git ls-remote "$URL" "refs/heads/$BRANCH"
"""
SSH = ("export GIT_SSH_COMMAND=\"ssh -i $PWD/deploy -o StrictHostKeyChecking=accept-new "
       "-o UserKnownHostsFile=/tmp/known -o IdentitiesOnly=yes -o BatchMode=yes\"\n")

PROGRAMS = [
    Program("curl", "curl -sS -m 10 http://$HOST:8081/hello", "hello from the web",
            "Could not resolve host: " + DENIED),
    Program("wget", "wget -q -O - http://$HOST:8081/hello || wget -O - http://$HOST:8081/hello",
            "hello from the web", "unable to resolve host address"),
    Program("git-http", "URL=http://$HOST:8081/git/http.git" + GIT, "refs/heads/",
            "Could not resolve host: " + DENIED),
    Program("git-ssh", SSH + "URL=ssh://git@$HOST:2222/~/ssh.git" + GIT, "refs/heads/",
            f"Could not resolve hostname {DENIED}"),
    Program("pip", "/usr/bin/python3 -m pip -q --disable-pip-version-check install --no-cache-dir "
            "--retries 0 --target /tmp/$HOST --break-system-packages --trusted-host $HOST "
            "--index-url http://$HOST:8081/simple tinywheel && cat /tmp/$HOST/tinywheel.py",
            "answer = 42", "No matching distribution found for tinywheel"),
    Program("npm", "mkdir /tmp/$HOST && cd /tmp/$HOST && npm install --fetch-retries 0 --no-audit --no-fund "
            "--no-update-notifier --cache /tmp/$HOST/cache --registry http://$HOST:8081/npm/ tinypackage "
            "&& node -p 'require(\"tinypackage\")'", "42", "ENOTFOUND", "npm"),
    Program("raw", "$RAW $HOST 8081", "hello from the web", "raw: no such host"),
    Program("java", "java -XX:TieredStopAtLevel=1 -cp . Fetch $HOST", "hello from the web",
            "UnresolvedAddressException", "javac", once=True),
    Program("node", "node -e '" + FETCH + "' $HOST", "hello from the web", "ENOTFOUND", "node"),
    Program("psql", "psql -h $HOST -U tester -At -c 'select 6 * 7' postgres", "42",
            f'could not translate host name "{DENIED}" to address', "psql"),
    Program("redis-cli", "redis-cli -h $HOST incrby counter$$ 42; redis-cli -h $HOST ping", "PONG",
            f"Could not connect to Redis at {DENIED}:6379", "redis-cli"),
]


def enter_network_of(pid):
    def enter():
        fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        if ctypes.CDLL(None, use_errno=True).setns(fd, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    return enter


def compile_java(folder):
    """While the servers start."""
    source = os.path.join(folder, "Fetch.java")
    with open(source, "w") as out:
        out.write(JAVA)
    return subprocess.Popen(["javac", "-proc:none", source]) if shutil.which("javac") else None


@pytest.fixture(scope="module")
def services(internet):
    """All servers, once for the whole module; the folder holds the key that opens the git server."""
    for path in ("/usr/sbin/dropbear", "/usr/bin/redis-check-rdb", "/usr/lib/postgresql"):
        if not os.path.exists(path):
            pytest.skip(f"there is no {path}; see tools/packages.txt")
    folder = tempfile.mkdtemp(prefix="sandbox-services-", dir="/home")
    os.chmod(folder, 0o755)
    key = os.path.join(folder, "key")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    compiler = compile_java(folder)
    with open(key + ".pub") as public:
        servers = subprocess.Popen(
            ["/usr/bin/python3", os.path.join(HERE, "services.py"), "--address", ADDRESS,
             "--device", "wire1", "--folder", folder, "--public-key", public.read()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            preexec_fn=enter_network_of(internet.servers.pid))
    try:
        assert servers.stdout.readline() == "ready\n", "the servers did not start"
        assert not compiler or compiler.wait(60) == 0
        yield folder
    finally:
        servers.stdin.close()
        servers.wait(10)
        servers.stdout.close()
        shutil.rmtree(folder)


@pytest.fixture
def tools(net, services):
    """What the programs need beside themselves, in the project."""
    with open(os.path.join(services, "key")) as key:
        net.identity.file(net.path("deploy"), key.read(), 0o600)
    if os.path.exists(os.path.join(services, "Fetch.class")):
        net.identity.own(shutil.copy(os.path.join(services, "Fetch.class"), net.project))
    return net


def script(program, raw):
    """Both at once, each with its own output; they have nothing to do with each other."""
    text = (f"{UNSET}RAW={raw}\nBRANCH=b$(date +%s%N)\n"
            f"attempt() {{\n{program.run}\n}}\n")
    if program.once:
        text += f"(HOST='{ALLOWED} {DENIED}'; attempt) 2>/tmp/denied\n"
    else:
        text += f"(HOST={DENIED}; attempt) >/tmp/denied 2>&1 & (HOST={ALLOWED}; attempt); wait\n"
    return text + "echo BREAK; cat /tmp/denied\n"


@pytest.mark.works
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program(tools, program):
    if program.needs and not shutil.which(program.needs):
        pytest.skip(f"{program.needs} is not installed")
    raw = gates.program(tools.world, "net-raw")
    result = tools.run(["sh", "-c", script(program, raw)], timeout=60,
                       options=[f"--allow-network={ALLOWED}", "--json"])
    told = json.loads(result.stdout)
    allowed, _, denied = told["stdout"].partition("BREAK")
    assert program.says in allowed, f"{allowed}\n{told['stderr']}"
    assert program.error in denied, denied
    denials = {denial["host"] for denial in told["denials"] if denial["subject"] == "network"}
    assert denials == {DENIED}, denials
    assert {(host["host"], host["decision"]) for host in told["network"]["hosts"]} == \
        {(ALLOWED, "allow"), (DENIED, "deny")}
    assert (DENIED, "deny") in audited(tools, told["sid"])


def audited(net, sid):
    with open(os.path.join(net.identity.state, "sandbox/audit", sid + ".jsonl")) as log:
        events = [json.loads(line) for line in log]
    return {(event["host"], event["decision"]) for event in events
            if event["event"] in ("net", "decision") and "host" in event}

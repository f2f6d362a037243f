"""podman and docker: what the common list does not ask. Real engines, storage and daemon of our own."""

import glob
import json
import os
import signal
import socket
import subprocess
import threading
import time

import pytest

import harness
from containers import INTERNET, SMALL

pytestmark = pytest.mark.skipif(bool(os.environ.get("SANDBOX_SANITIZED")),
                                reason="a sanitized build runs the essential list on containers")


def sh(text):
    return ["sh", "-c", text]


@pytest.fixture(params=["podman", "docker"])
def box(request, identity, boxed):
    if (request.param, identity.name) in (("podman", "root"), ("docker", "user")) and not harness.LONG:
        pytest.skip("as the other identity; both with SANDBOX_TEST_LONG=1")
    made = boxed(request.param, identity)
    check = harness.LeakCheck(made)
    yield made
    problems = check.check(wait=3)
    problems += [f"container left: {name}" for name in made.ready.engine.left(identity)]
    assert not problems, "\n".join(problems)


def wait_for(condition, what, seconds=15):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.02)


def policy(box, text):
    return ["--policy", box.identity.file(box.home("policy.yaml"), "version: 1\n" + text)]


# ---- what is inside ----


def test_what_the_command_is_and_sees(box):
    """One start: ids, rights, files, masks, writing."""
    box.identity.file(box.home("extra/file"), "extra\n")
    script = """
        id -u; id -g
        grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status
        cat /of-the-image
        touch /made 2>/dev/null || echo root-readonly
        test -e /etc/shadow || echo no-host-etc
        cat .env 2>/dev/null || echo env-hidden
        echo x >> .git/config 2>/dev/null || echo config-protected
        mv .git away 2>/dev/null || echo git-pinned
        mkdir -p .cursor && touch .cursor/mcp.json 2>/dev/null || echo cursor-reserved
        cat ~/extra/file; touch ~/extra/new 2>/dev/null || echo extra-readonly
        cat ~/readable.txt 2>/dev/null || echo home-is-empty
        touch ~/mine /tmp/mine /var/tmp/mine && echo private-places
        touch made && hostname
    """
    # The number is the host's: keep-id, the same ids, or root without any right.
    result = box.run(sh(script), options=["--ro", box.home("extra")])
    lines = result.stdout.split("\n")
    assert lines[:2] == [str(box.identity.uid), str(box.identity.gid)], result
    assert "CapEff:\t0000000000000000" in lines and "CapBnd:\t0000000000000000" in lines, result
    assert "NoNewPrivs:\t1" in lines and "Seccomp:\t2" in lines, result
    for word in ("of the image", "root-readonly", "no-host-etc", "env-hidden", "config-protected",
                 "git-pinned", "cursor-reserved", "extra", "extra-readonly", "home-is-empty",
                 "private-places"):
        assert word in lines, (word, result)
    assert lines[-2].startswith("sandbox-"), result
    status = os.stat(box.path("made"))
    assert (status.st_uid, status.st_gid) == (box.identity.uid, box.identity.gid)
    assert not os.path.exists(box.home("mine")) and not os.path.exists(box.home("extra/new"))
    assert not os.path.exists(box.path(".cursor/mcp.json"))


def test_a_masked_folder_is_empty(box):
    """podman fills a new tmpfs with what it hides, unless told not to."""
    box.identity.file(box.path("vault/inner/key"), box.canary)
    seen = box.plain(sh("find vault -type f -exec cat {} +")).stdout
    assert box.canary in seen, "control"
    result = box.run(sh("find vault; cat vault/inner/key"), options=["--blacklist", box.path("vault")])
    assert "inner" not in result.stdout and box.canary not in result.stdout, result


def test_odd_names(box):
    """Commas, quotes and colons divide the options of the tools."""
    folder = box.home('p,ro "x":y')
    box.identity.file(os.path.join(folder, "file"), "there\n")
    box.identity.file(os.path.join(folder, ".env"), box.canary)
    result = box.run(sh("cat file; cat .env; echo made > made"), cwd=folder)
    assert result.stdout == "there\n" and os.path.exists(os.path.join(folder, "made")), result


def test_the_environment_is_not_on_the_command_line(box):
    process = box.start(sh("echo $TOKEN > said; while ! test -e go; do sleep 0.05; done"),
                        options=["--env", "TOKEN=very-secret-value"],
                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: os.path.exists(box.path("said")), "the command")
    lines = [harness.text(open(path, "rb").read()) for path in glob.glob("/proc/[0-9]*/cmdline")
             if os.path.exists(path)]
    box.identity.file(box.path("go"), "")
    assert process.wait(harness.TIMEOUT) == 0
    with open(box.path("said")) as said:
        assert said.read() == "very-secret-value\n"
    tools = [line for line in lines
             if "run\0" in line and os.path.basename(line.split("\0")[0]) == box.name]
    assert tools and not [line for line in tools if "very-secret-value" in line]


def test_the_image_that_is_asked_for(box):
    assert box.run(sh("cat /of-the-image"), options=["--image", SMALL]).stdout == "of the image\n"
    options = policy(box, f"container: {{image: '{SMALL}', runtime: runc}}\n")
    assert box.run(sh("cat /of-the-image"), options=options).stdout == "of the image\n"


def test_a_user_made_in_the_image(box):
    options = policy(box, "container: {user: create}\n")
    if box.identity.uid == 0:
        pytest.skip("root is in every image")
    result = box.run(sh("id -u; id -un; touch created; echo \"it's\""), options=options)
    if box.name == "podman":
        # Rootless, root of the container is the caller: a second user would be somebody else.
        assert result.exit == 125 and "fix:" in result.stderr, result
        return
    assert result.stdout.split("\n")[0] == str(box.identity.uid), result
    assert "it's" in result.stdout and os.stat(box.path("created")).st_uid == box.identity.uid


def overlays(box):
    folder = os.path.join(box.identity.state, "sandbox/overlays")
    return set(os.listdir(folder)) if os.path.isdir(folder) else set()


def tell(box, *words):
    process = harness.Box.popen(box, [box.world.command, *words], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=harness.TIMEOUT)
    assert process.returncode in (0, 1), err
    return harness.text(out)


def test_overlay(box):
    before = overlays(box)
    if box.identity.uid:  # what the engine leaves in the work folder only root can remove
        refused(box, ["--overlay", box.project], "overlays")
        assert overlays(box) == before
        return
    result = box.run(sh("echo changed > main.c; rm README.md; rm -r sub; mkdir sub; ls sub"),
                     options=["--overlay", box.project])
    assert result.exit == 0, result
    with open(box.path("main.c")) as source:
        assert "changed" not in source.read()
    assert os.path.exists(box.path("README.md")) and os.path.exists(box.path("sub"))
    session = (overlays(box) - before).pop()
    shown = tell(box, "diff", session)
    assert "+changed" in shown and "README.md" in shown, shown
    tell(box, "discard", session)
    assert overlays(box) == before


# ---- network ----


class Page:
    """A server at the address that stands for the internet, in the namespace that we are in."""

    def __enter__(self):
        self.listener = socket.create_server((INTERNET, 8088))
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def _serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with client:
                client.sendall(b"from outside\n")

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)  # wakes the one who waits
        self.listener.close()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def hear(port):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            return client.recv(100).decode() or None
    except OSError:
        return None


def once_for_a_daemon(box):
    if box.name == "docker" and box.identity.uid:
        pytest.skip("the daemon is the same for both")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make network namespaces")
def test_the_whole_network_and_a_published_port(box):
    once_for_a_daemon(box)
    with box.ready.engine.network(), Page():
        port = free_port()
        ask = f"nc -w 5 {INTERNET} 8088 < /dev/null"
        assert box.run(sh(ask + " || echo unreachable")).stdout == "unreachable\n", "control: none"
        again = f"i=0; until {ask} || test $i -gt 50; do i=$((i + 1)); sleep 0.1; done"
        process = box.start(sh(f"{again}; touch up; while :; do echo inside | nc -l -p 8000; done"),
                            options=["--allow-network", "--publish", f"{port}:8000"],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        try:
            wait_for(lambda: os.path.exists(box.path("up")) or process.poll() is not None, "the server")
            wait_for(lambda: hear(port) == "inside\n", "the published port")
        finally:
            process.terminate()
            out, _ = process.communicate(timeout=harness.TIMEOUT)
        assert harness.text(out) == "from outside\n"
        assert hear(port) is None, "still open after the end"


def test_what_is_denied_cannot_be_left_out(box):
    refused(box, policy(box, "network: {mode: full, deny: ['*.example.org']}\n"), "hosts")


# ---- one more command inside ----


def session_of(box, process):
    listed = json.loads(tell(box, "ps", "--json"))
    return next((entry for entry in listed if entry["pid"] == process.pid), None)


def test_exec_enters_the_container(box):
    once_for_a_daemon(box)
    process = box.start(sh("touch up; while ! test -e go; do sleep 0.05; done"), stdin=subprocess.DEVNULL)
    wait_for(lambda: os.path.exists(box.path("up")), "the command")
    wait_for(lambda: session_of(box, process), "the session's entry")
    sid = session_of(box, process)["sid"]
    script = "pwd; id -u; cat /of-the-image; grep CapEff /proc/self/status; touch /made || echo read-only; exit 7"
    inside = harness.Box.popen(box, [box.world.command, "exec", sid, "--", *sh(script)],
                               env=box.ready.engine.environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = inside.communicate(timeout=harness.TIMEOUT)
    box.identity.file(box.path("go"), "")
    assert process.wait(harness.TIMEOUT) == 0
    assert inside.returncode == 7, (out, err)
    assert harness.text(out).split("\n")[:-1] == [
        box.project, str(box.identity.uid), "of the image", "CapEff:\t0000000000000000", "read-only"]
    log = [json.loads(line) for line in tell(box, "audit", "--json", sid).splitlines()]
    assert any(line["event"] == "exec" and line["argv"] == sh(script) for line in log), log


# ---- ends ----


def test_commands_that_cannot_be_executed(box):
    result = box.run(["no-such-command"])
    assert result.exit == 127 and "no-such-command" in result.stderr, result
    box.identity.file(box.path("data"), "no program")
    result = box.run(["./data"])
    assert result.exit == 126 and "data" in result.stderr, result


@pytest.mark.parametrize("victim", ["runner", "runner and guard"])
def test_no_container_outlives_us(box, victim):
    process = box.start(sh("trap '' TERM INT; touch up; while :; do sleep 0.1; done"),
                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: os.path.exists(box.path("up")), "the command")
    engine, identity = box.ready.engine, box.identity
    assert len(engine.left(identity)) == 1, "control"
    # Whoever was killed, the next start sweeps.
    pids = [process.pid]
    if victim != "runner":
        pids += [pid for pid in harness.children(process.pid)
                 if harness.command_line(pid) == harness.command_line(process.pid)]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: not any(map(harness.command_line, pids)), "their end")
    if victim == "runner":
        wait_for(lambda: not engine.left(identity), "the end of the container")
    assert box.run(["true"]).exit == 0
    wait_for(lambda: not engine.left(identity), "the end of the container")


# ---- refusals: one sentence, the fix, nothing started ----


def refused(box, options, *words, argv=("touch", "made"), env=None):
    result = box.run(list(argv), options=["--strict", *options], env=env)
    assert result.exit == 125 and "fix:" in result.stderr, result
    for word in words:
        assert word in result.stderr, result
    assert not os.path.exists(box.path("made"))
    return result


def test_an_image_that_is_not_here(box):
    refused(box, ["--image", "no-such-image:7"], "no-such-image:7", f"{box.name} pull")
    refused(box, ["--image=--privileged"], "--privileged")


def test_a_runtime_that_is_not_here(box):
    """gVisor is not packaged: its words are in test-backend-container.c, and this is what is said."""
    refused(box, policy(box, "container: {runtime: runsc}\n"), "runsc", box.name)


def test_control_sockets_are_never_mounted(box):
    path = box.path("docker.sock")
    server = socket.socket(socket.AF_UNIX)
    os.chdir(box.project)  # its path is too long for a socket's name
    server.bind("docker.sock")
    box.identity.own(path)
    try:
        refused(box, ["--rw", path], "docker.sock", "container engine")
        refused(box, policy(box, f"network: {{unix_sockets: ['{path}']}}\n"), "docker.sock")
    finally:
        os.chdir("/")
        server.close()
        os.unlink(path)


def test_a_socket_of_the_daemon_below_the_project_is_masked(box):
    if box.name != "docker":
        pytest.skip("podman has no daemon")
    real = box.ready.engine.environment["DOCKER_HOST"].removeprefix("unix://")
    folder = os.path.dirname(real)
    result = box.run(sh(f"test -S {real} && echo reachable; ls {real}"), options=["--ro", folder])
    assert "reachable" not in result.stdout and real in result.stdout, result


def test_limits_that_are_not_held_are_refused(box):
    features = box.ready.entry["features"]
    for feature, option in (("limit-memory", ["--memory", "64M"]), ("limit-cpu", ["--cpus", "0.5"]),
                            ("limit-processes", ["--pids", "50"]), ("limit-disk", ["--disk", "1G"])):
        if features[feature] == "yes":
            continue
        refused(box, option, "cannot enforce")
    # On cgroup v1 podman without root would go on with a warning.
    assert features["limit-disk"] == "no"


def test_filtered_network_and_links_are_refused(box):
    refused(box, ["--allow-network=example.org"], "hosts")
    os.rename(box.path(".mcp.json"), box.path("mcp.json"))
    os.symlink("mcp.json", box.path(".mcp.json"))
    refused(box, [], "symbolic link")


def test_a_daemon_that_does_not_run(world, boxed):
    box = boxed("docker", world.identity("root" if world.root else "user"))
    refused(box, [], "daemon", "DOCKER_HOST", env={"DOCKER_HOST": "unix:///nowhere/s"})


@pytest.mark.parametrize("tool", ["podman", "docker"])
def test_a_tool_that_is_not_installed(world, boxed, tool):
    box = boxed(tool, world.identity("root" if world.root else "user"))
    empty = os.path.join(world.base, "no-tools")
    os.makedirs(empty, exist_ok=True)
    result = box.run(["true"], env={"PATH": empty})
    assert result.exit == 125 and tool in result.stderr and "apt install" in result.stderr, result

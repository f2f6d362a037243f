"""The examples of other programs' documents, imported by the command."""

import json
import os

import pytest

CLAUDE = json.dumps({"sandbox": {
    "enabled": True, "autoAllowBashIfSandboxed": True, "excludedCommands": ["docker", "kubectl"],
    "allowUnsandboxedCommands": True,
    "network": {"allowUnixSockets": ["~/.ssh/agent"], "httpProxyPort": 8080,
                "socksProxyPort": 1080}}}, indent=2)
DIVE = """# In dive.yaml or agent config
sandbox:
  enabled: true
  allow_network: false
  allowed_write_paths:
    - ~/.cache/go-build
    - ~/.npm

  docker:
    image: "node:20-slim"
    ports:
      - "3000"
      - "9229" # Node debugger

  seatbelt:
    profile: restrictive
"""
MYCODE = json.dumps({
    "type": "docker", "enabled": False,
    "limits": {"cpuPercent": 50, "memoryMB": 512, "diskMB": 1024, "timeoutSeconds": 60,
               "maxProcesses": 50},
    "network": {"enabled": False},
    "filesystem": {"readOnly": ["/"], "readWrite": ["/tmp"],
                   "hidden": ["/etc/passwd", "/etc/shadow"], "tempDir": "/tmp/mycode-sandbox"}})
NEURAPHAGE = """[sandbox]
enabled = true
isolate_network = true
extra_rw_paths = ["/home/user/.cargo"]
extra_ro_paths = ["/opt/tools"]
"""
SRT = json.dumps({
    "network": {"allowedDomains": ["github.com", "*.npmjs.org"], "deniedDomains": [],
                "allowLocalBinding": True},
    "filesystem": {"denyRead": ["~/.ssh"], "allowWrite": [".", "/tmp"], "denyWrite": [".env"]},
    "ignoreViolations": {"*": ["/usr/bin"]}})

ROWS = {
    "claude": (".claude/settings.json", CLAUDE, [
        "commands.exclude: docker", "commands.exclude: kubectl", "commands.allow_unsandboxed: true",
        "network.unix_sockets: ", "network.http_proxy: http://127.0.0.1:8080", "network.mode: filtered",
        "network.socks_proxy: socks5://127.0.0.1:1080"], []),
    "dive": ("dive.yaml", DIVE, [
        "network.mode: none", "filesystem.write: ", "network.publish: 3000:3000",
        "container.image: node:20-slim"], []),
    "mycode": ("sandbox.json", MYCODE, [
        "require: disabled", "backend: docker", "limits.memory_mb: 512", "limits.max_processes: 50",
        "filesystem.hide: /etc/passwd"], ["filesystem.tempDir"]),
    "neuraphage": ("config.toml", NEURAPHAGE, [
        "require: required", "network.mode: none", "filesystem.write: /home/user/.cargo",
        "filesystem.read: /opt/tools"], []),
    "srt": (".srt-settings.json", SRT, [
        "network.mode: filtered", "network.allow: github.com", "filesystem.hide: ",
        "filesystem.protect: "], ["ignoreViolations"]),
}


def imported(box, *words):
    return box.plain([box.world.command, "policy", "import", *words])


@pytest.mark.parametrize("format", ROWS)
@pytest.mark.parametrize("named", [False, True], ids=["recognised", "named"])
def test_examples(box, format, named):
    name, text, expected, lost = ROWS[format]
    file = box.identity.file(box.path("theirs", name), text)
    result = imported(box, *(["--from", format] if named else []), "--dry-run", file)
    assert result.exit == 0, result
    lines = result.stdout.splitlines()
    for line in expected:
        assert any(found.startswith("+ " + line) for found in lines), (line, result)
    for key in lost:
        assert f"not imported: {file}:" in result.stderr and key in result.stderr, result
    assert result.stderr.count("not imported") == len(lost), result
    assert not os.path.exists(box.home(".config/sandbox/policy.yaml")), "a dry run wrote"


def test_what_was_imported_holds(box):
    file = box.identity.file(box.path("theirs/config.toml"), "[sandbox]\nisolate_network = true\n"
                             f"extra_rw_paths = ['{box.home('shared')}']\n")
    box.identity.folder(box.home("shared"))
    control = box.run(["touch", box.home("shared/before")])
    assert control.exit != 0 and not os.path.exists(box.home("shared/before"))
    assert imported(box, file).exit == 0
    assert box.run(["touch", box.home("shared/after")]).exit == 0
    assert os.path.exists(box.home("shared/after"))


@pytest.mark.parametrize("name, text, place", [
    ("bad.toml", "[sandbox]\nisolate_network = maybe\n", "bad.toml:2:"),
    ("bad.toml", "[sandbox\n", "bad.toml:1:"),
    (".claude/settings.json", '{"sandbox": {\n "enabled": "yes"}}', "settings.json:2:13:"),
    ("dive.yaml", "sandbox:\n\tenabled: true\n", "dive.yaml:2:"),
])
def test_errors_name_the_place(box, name, text, place):
    file = box.identity.file(box.path("theirs", name), text)
    result = imported(box, "--from", {"b": "neuraphage", ".": "claude", "d": "dive"}[name[0]], file)
    assert result.exit == 125 and place in result.stderr, result

"""The organisation's store, /etc/sandbox: what only root can lay down, in a mount namespace of the
tests' own. Nothing of the machine's /etc is changed."""

import json
import os
import subprocess
import tempfile

import pytest

import dynamic
from sessions import sandbox

ORGANISATION = "/etc/sandbox"


@pytest.fixture
def organisation(host_root):
    """A function that writes the organisation's policy."""
    layers = tempfile.mkdtemp(dir="/run")
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", layers], check=True)
    for name in ("upper", "work"):
        os.mkdir(f"{layers}/{name}", 0o755)
    mounted = subprocess.run(
        ["mount", "-t", "overlay", "overlay", "-o",
         f"lowerdir=/etc,upperdir={layers}/upper,workdir={layers}/work", "/etc"],
        check=False, capture_output=True, text=True)
    try:
        if mounted.returncode != 0:
            pytest.skip(f"no overlay can be laid over /etc here: {mounted.stderr}")
        os.mkdir(ORGANISATION, 0o755)

        def write(text):
            with open(f"{ORGANISATION}/policy.yaml", "w") as target:
                target.write("version: 1\n" + text)
        yield write
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "-l", "/etc"], check=True)
        subprocess.run(["umount", "-l", layers], check=True)
        os.rmdir(layers)


@pytest.fixture
def data(box):
    return dynamic.ground(box)


@pytest.mark.escape
def test_its_deny_is_final_and_silent(organisation, box, data):
    """E127: the user's and the trusted project's policy allow it; it stays hidden, nobody is asked,
    and it is in the log. The control: without the rule they do allow it."""
    box.identity.file(box.path(".sandbox/policy.yaml"),
                      f"version: 1\nfilesystem: {{read: [{data}/b.txt]}}\n")
    assert sandbox(box, "policy", "trust").exit == 0
    dynamic.write_policy(box, f"filesystem: {{read: [{data}/b.txt]}}\n")
    assert dynamic.run(box, ["cat", f"{data}/b.txt"]).stdout == "content of b\n"
    organisation(f"filesystem: {{hide: [{data}/b.txt]}}\n")
    with dynamic.asking(box, ["cat", f"{data}/b.txt"]) as session:
        code, out, err = session.result()
        assert (code, out) == (1, "") and "denied:" not in err, err
        sid = session.sid
    decided = [line for line in dynamic.audit_lines(box, sid) if line["event"] == "decision"]
    assert [(line["decision"], line["path"], line["store"]) for line in decided] == [
        ("hide", f"{data}/b.txt", "org")], decided
    explained = json.loads(sandbox(box, "policy", "explain", "--json", f"{data}/b.txt").stdout)
    assert explained["verdict"] == "hide" and explained["flag"] is None
    sandbox(box, "policy", "trust", "--revoke")


def test_approval_for_everybody(organisation, box, data):
    """Whoever may write there may approve for all; what was approved says who, when and why."""
    organisation("")
    with dynamic.asking(box, ["cat", f"{data}/a.txt"]) as session, session.watch() as control:
        asked = dynamic.question(control)
        reply = dynamic.answer(control, {"cmd": "cmd.approve", "id": asked["id"], "scope": "org"})
        if box.identity.uid != 0:
            assert "error" in reply and not os.path.exists(f"{ORGANISATION}/grants.yaml")
            return
        assert reply == {"ok": True} and session.result()[:2] == (0, "content of a\n")
    granted = json.loads(sandbox(box, "policy", "grants", "--json").stdout)
    kept = [one for one in granted["grants"] if one["path"] == f"{data}/a.txt"]
    assert len(kept) == 1 and kept[0]["scope"] == "org", granted
    assert kept[0]["by"] and kept[0]["when"] and "cat" in kept[0]["why"], kept
    assert dynamic.run(box, ["cat", f"{data}/a.txt"]).stdout == "content of a\n"


def test_what_was_approved_for_everybody_is_not_ours_to_revoke(organisation, box, data):
    """That is said, and nothing else is; also if an approval of one's own goes."""
    organisation("")
    text = f"version: 1\ngrants:\n  - {{decision: allow, path: '{data}/a.txt', access: read}}\n" \
           "  - {decision: allow, host: example.org}\n"
    box.identity.file(box.home(".config/sandbox/grants.yaml"), text)
    with open(f"{ORGANISATION}/grants.yaml", "w") as target:
        target.write(text)
    for name in (f"{data}/a.txt", "example.org"):
        first, second = (sandbox(box, "policy", "revoke", name) for _ in range(2))
        if box.identity.uid == 0:
            assert (first.exit, first.stdout) == (0, "revoked: 2 stored, in 0 running sessions\n"), first
            assert second.exit == 125 and "nothing was approved" in second.stderr, second
        else:
            assert first.exit == 0 and "1 stored" in first.stdout and "administrator" in first.stderr, first
            assert second.exit == 125 and "administrator" in second.stderr and "nothing" not in second.stderr, second

"""The report at the end of a session: what changed, what deserves a look, within bounds."""

import json
import os
import time


def report(caller, script):
    """Runs a script with --report; returns the report as JSON and what was said."""
    time.sleep(0.02)  # stamps have the granularity of a tick
    done = caller.run("run", "--static", "--report", "--", "sh", "-c", script)
    sid = done.stderr.split("session ")[1].split(":")[0]
    shown = caller.run("report", "--json", sid)
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout), done.stderr, sid


def names(report, kind):
    return sorted(item["path"] for item in report["changes"]["items"] if item["kind"] == kind)


def flags(report, path):
    return next(item["flags"] for item in report["changes"]["items"] if item["path"] == path)


def test_kinds(caller):
    (caller.project / "old").write_text("1")
    (caller.project / "same").write_text("1")
    (caller.project / "gone").mkdir()
    (caller.project / "gone/x").write_text("1")
    caller.own()
    found, said, _ = report(caller, "echo 2 > old; rm -r gone; mkdir new; echo 1 > new/y")
    assert names(found, "created") == ["new", "new/y"]
    assert names(found, "modified") == ["old"]
    assert names(found, "deleted") == ["gone", "gone/x"]
    assert found["changes"]["complete"] is True
    assert "2 created, 1 modified, 2 deleted" in said


def test_nothing(caller):
    (caller.project / "a").write_text("1")
    caller.own()
    found, said, sid = report(caller, "true")
    assert found["changes"]["items"] == []
    assert "nothing changed" in said
    assert "nothing changed" in caller.run("report", sid).stdout


def test_our_own_placeholders_are_no_changes(caller):
    (caller.project / ".git").mkdir()
    caller.own()
    found, _, _ = report(caller, "test -d .vscode")
    assert found["changes"]["items"] == []


def test_what_deserves_a_look(caller):
    (caller.project / "package.json").write_text("{}")
    caller.own()
    script = r"""
        echo '{"scripts":{"postinstall":"x"}}' > package.json
        mkfifo pipe; ln -s /etc/passwd link; ln -s package.json inner
        mkdir -p sub/.git sub/hooks node_modules/.bin
        echo x > sub/hooks/run; chmod +x sub/hooks/run; echo x > node_modules/.bin/tsc
        touch "$(printf 'a\033[2Kb')" plain
    """
    found, said, _ = report(caller, script)
    assert flags(found, "package.json") == ["run-later"]
    assert flags(found, "pipe") == ["fifo"]
    assert flags(found, "link") == ["link-outside"]
    assert flags(found, "inner") == []
    assert flags(found, "sub/.git") == ["nested-git"]
    assert flags(found, "sub/hooks/run") == ["hook"]
    assert flags(found, "node_modules/.bin/tsc") == ["run-later"]
    assert flags(found, "a\x1b[2Kb") == ["strange-name"]
    assert flags(found, "plain") == []
    assert "\x1b[2K" not in said and "a\\x1b[2Kb" in said
    assert "npm runs its scripts" in said


def test_samples_of_hooks_are_none(caller):
    """git brings them along, and runs none of them; what it would run is told."""
    (caller.project / "other").mkdir()
    caller.own()
    script = "mkdir -p sub/hooks other/hooks; for i in sub/hooks/a.sample sub/hooks/b sub/c.sample; do " \
        "echo x >$i; chmod +x $i; done; ln -s b sub/hooks/d.sample"
    found, said, _ = report(caller, script)
    assert [flags(found, f"sub/{name}") for name in ("hooks/a.sample", "hooks/b", "c.sample")] == [[], ["hook"], []]
    assert "sub/hooks/b" in said


def test_setuid_bits_set_by_others_are_seen(caller):
    """The sandbox forbids setting them; a file that gets one anyway must be seen."""
    path = caller.project / "s"
    path.write_text("1")
    caller.own()
    child = caller.start("run", "--static", "--report", "--", "sleep", "1")
    time.sleep(0.5)
    os.chmod(path, 0o4755)
    assert child.wait() == 0
    folder = caller.state / "sandbox/reports"
    found = json.loads(next(folder.iterdir()).read_text())
    assert flags(found, "s") == ["setuid"]


def test_the_first_moment(caller):
    """A file that is written right after the start is reported, every time."""
    (caller.project / "f").write_text("1")
    caller.own()
    for _ in range(10):
        found, _, _ = report(caller, "echo 2 > f")
        assert names(found, "modified") == ["f"]


def test_many_files(caller):
    for folder in range(100):
        (caller.project / f"d{folder}").mkdir()
        for number in range(100):
            (caller.project / f"d{folder}/f{number}").touch()
    caller.own()
    found, said, _ = report(caller, "rm -r d7; touch d8/new; mkfifo d9/pipe")
    assert found["changes"]["deleted"] == 101
    assert names(found, "created") == ["d8/new", "d9/pipe"]
    assert "deleted   d7/\n" in said and "d7/f1" not in said


def test_unknown_and_ambiguous_sessions(caller):
    folder = caller.state / "sandbox/reports"
    folder.mkdir(parents=True)
    for sid in ("aaaaaaab", "aaaaaaac"):
        (folder / f"{sid}.json").write_text('{"version":1}')
    caller.own()
    unknown = caller.run("report", "zzz")
    assert unknown.returncode == 125 and "aaaaaaab" in unknown.stderr
    ambiguous = caller.run("report", "aaaa")
    assert ambiguous.returncode == 125 and "more than one" in ambiguous.stderr
    assert caller.run("report", "../../x").returncode == 125
    assert caller.run("report").returncode == 125

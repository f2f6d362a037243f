"""Nobody is asked about everyday work. Each of these runs in dynamic mode with the built-in base
list alone; a question that nobody answers is a denial, and there must be none."""

import base64
import hashlib
import json
import os
import shutil
import zipfile

import pytest

import gates


# Each gate and each identity once; all of them in the long run.
pytestmark = pytest.mark.parametrize(
    "pair", gates.PAIRS if gates.LONG else ["fuse-user", "notify-root"], indirect=True)


@pytest.fixture
def work(gate, box):
    """Runs a shell script in dynamic mode in the project; gives its output."""
    return lambda script, env=None: everyday(box, gate, script, env)


def everyday(box, gate, script, env=None):
    result = box.plain([box.world.command, "run", "--mode", "dynamic", "--gate", gate, "--json",
                        "-c", f"set -e\n{script}"], env=env, timeout=120)
    assert result.stdout, result
    answer = json.loads(result.stdout)
    # What is hidden is never asked about (npm would read a ~/.npmrc, with its tokens).
    denied = [f"{one['access']} {one['path']}: {one['reason']}" for one in answer["denials"]
              if one["reason"] != "hidden"]
    assert not denied, " ".join(denied)
    assert answer["exitCode"] == 0, (answer["stdout"], answer["stderr"])
    return answer["stdout"]


def needs(*programs):
    for program in programs:
        if not shutil.which(program, path="/usr/bin:/bin"):
            pytest.skip(f"{program} is not installed")


def test_a_denial_would_be_seen(box, work):
    """The control: what is not in the base list is denied, and listed."""
    box.identity.file(box.home("private/notes"), "notes\n")
    with pytest.raises(AssertionError, match="private/notes"):
        work(f"cat {box.home('private/notes')}")


def test_a_c_build(box, work):
    box.identity.file(box.path("main.c"), "#include <stdio.h>\n#include \"part.h\"\n"
                      "int main(void) { printf(\"%d\\n\", part()); return 0; }\n")
    box.identity.file(box.path("part.h"), "int part(void);\n")
    box.identity.file(box.path("part.c"), "#include \"part.h\"\nint part(void) { return 42; }\n")
    box.identity.file(box.path("Build.mk"), "program: main.o part.o\n\t$(CC) -o $@ $^ -lm\n"
                      "%.o: %.c part.h\n\t$(CC) -Wall -g -c -o $@ $<\n")
    assert work("make -s -f Build.mk CC=gcc && ./program && objdump -d program | grep -c part "
                ">/dev/null && echo built").split() == ["42", "built"]


def test_git(box, work):
    box.identity.file(box.home(".gitconfig"), "[user]\n\tname = Somebody\n\temail = s@example.org\n"
                      "[alias]\n\tst = status\n")
    said = work("""
        git init -q /tmp/one && cd /tmp/one
        echo first > file && git add file && git commit -qm 'The first'
        echo second >> file && git st --short && git diff --stat && git commit -qam 'The second'
        git clone -q /tmp/one /tmp/two && cd /tmp/two && git log --format='%an %s' && git gc -q
        git branch other && git checkout -q other && git stash list && git blame -s file | wc -l""")
    assert "Somebody The second" in said and said.split()[-1] == "2"


def test_what_the_git_configuration_names(box, work):
    """Git stops at an include that it may not look at, whatever it was to do."""
    box.identity.file(box.home(".gitconfig"), """[core]
        excludesFile = ~/dots/ignored
        attributesFile = "~/dots/attributes" ; a comment
        hooksPath = ~/dots/hooks
        [include] path = dots/more.inc
        [includeIf "gitdir:/"]
        \tpath = ~/dots/work.inc
        [commit]
        template = ~/dots/message
        [init]
        templateDir = ~/dots/template
        """)
    box.identity.file(box.home("dots/more.inc"), "[user]\nname = Somebody\n[include]\npath = deeper.inc\n")
    box.identity.file(box.home("dots/deeper.inc"), "[alias]\nst = status --short\n")
    box.identity.file(box.home("dots/work.inc"), "[user]\nemail = s@example.org\n")
    box.identity.file(box.home("dots/ignored"), "*.o\n")
    box.identity.file(box.home("dots/attributes"), "*.bin binary\n")
    box.identity.file(box.home("dots/message"), "Subject\n")
    box.identity.file(box.home("dots/template/description"), "of the template\n")
    box.identity.file(box.home("dots/hooks/pre-commit"), "#!/bin/sh\necho hook >&2\n", 0o755)
    said = work("""
        git init -q /tmp/named && cd /tmp/named && cat .git/description
        touch a.o b.bin && git st && git check-attr binary b.bin
        git add b.bin && git commit -qm first 2>&1 && git log --format='%an %ae'""")
    assert said.splitlines() == ["of the template", "?? b.bin", "b.bin: binary: set", "hook",
                                 "Somebody s@example.org"]


@pytest.mark.parametrize("named", [".ssh/config", "private/.env", "private/..", ""])
def test_what_it_may_not_name(box, gate, named):
    """A secret stays one, and nobody means the home folder. The control is the test above."""
    for name in (".ssh/config", "private/.env", "private/notes"):
        box.identity.file(box.home(name), "hunter2\n")
    box.identity.file(box.home(".gitconfig"),
                      f"[core]\nhooksPath = ~/{named}\n[include]\npath = ~/{named}\n")
    wanted = named if os.path.isfile(box.home(named)) else "private/notes"
    result = box.plain([box.world.command, "run", "--gate", gate, "--", "cat", box.home(wanted)])
    assert result.exit == 1 and "Permission denied" in result.stderr, result
    assert "hunter2" not in result.stdout


def test_what_an_include_may_not_name(box, gate):
    """It may lie in another project, where a session has written it."""
    box.identity.file(box.home("private/notes"), "hunter2\n")
    box.identity.file(box.home("other/beside"), "beside\n")
    box.identity.file(box.home("other/inc"), "[include]\npath = ~/private/notes\npath = beside\n"
                      "[core]\nexcludesFile = ~/private/notes\n")
    box.identity.file(box.home(".gitconfig"), "[include]\npath = ~/other/inc\n")
    result = box.plain([box.world.command, "run", "--gate", gate, "--", "cat", box.home("other/inc"),
                        box.home("other/beside"), box.home("private/notes")])
    assert "beside\n" in result.stdout and "hunter2" not in result.stdout, result
    assert result.stderr.count("Permission denied") == 1, result


def test_names_in_opt(box, work):
    """Compilers look there for parts of themselves, at every start; what is in it is asked about."""
    folder = f"/opt/sandbox-test-{os.getpid()}"
    if os.geteuid() != 0 or not os.path.isdir("/opt"):
        pytest.skip("only root can put something into /opt")
    try:
        os.mkdir(folder)
        with open(f"{folder}/file", "w", encoding="utf-8") as file:
            file.write("content\n")
        box.identity.file(box.path("main.c"), "int main(void) { return 0; }\n")
        compile_it = "clang -o main main.c && ./main\n" if shutil.which("clang") else ""
        said = work(compile_it + "ls /opt; python3 -c 'import os; print(*os.listdir(\"/opt\"))'\n"
                    "python3 -c 'import os; os.chdir(\"/opt\"); os.open(\"/opt\", os.O_PATH)'")
        assert said.count(os.path.basename(folder)) == 2
        for attempt in (f"cat {folder}/file", f"ls {folder}"):
            with pytest.raises(AssertionError, match=folder):
                work(attempt)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def wheel(folder):
    """A package as a local index would have it."""
    path = os.path.join(folder, "everyday-1.0-py3-none-any.whl")
    files = {"everyday.py": "answer = 42\n",
             "everyday-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: everyday\nVersion: 1.0\n",
             "everyday-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\n"
             "Root-Is-Purelib: true\nTag: py3-none-any\n"}
    record = "".join(f"{name},sha256={digest(text)},{len(text)}\n" for name, text in files.items())
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, "everyday-1.0.dist-info/RECORD": record}.items():
            archive.writestr(name, text)
    return path


def digest(text):
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def test_python_with_a_venv_and_pip(box, work):
    box.identity.folder(box.path("index"))
    box.identity.own(wheel(box.path("index")))
    assert work("""
        /usr/bin/python3 -m venv --without-pip --system-site-packages /tmp/venv
        . /tmp/venv/bin/activate
        python -m pip install -q --disable-pip-version-check --no-index --find-links index everyday
        python -c 'import everyday, json, sqlite3, ssl; print(everyday.answer)'""").split() == ["42"]


def test_node_and_npm_from_the_cache(box, work):
    needs("node", "npm")
    box.identity.file(box.path("module/package.json"), '{"name": "module", "version": "1.0.0"}\n')
    box.identity.file(box.path("module/index.js"), "module.exports = 42\n")
    box.identity.file(box.path("application/package.json"),
                      '{"name": "application", "version": "1.0.0"}\n')
    box.identity.folder(box.home(".npm"))
    assert work("""
        cd module && npm pack --silent --offline >/dev/null && cd ../application
        npm cache add --silent --offline ../module/module-1.0.0.tgz
        npm install --silent --offline --no-audit --no-fund ../module/module-1.0.0.tgz
        npm ci --silent --offline --no-audit --no-fund
        node -e 'console.log(require("module"), require("./node_modules/module"))'
        """).split()[-1] == "42"


def test_the_first_use_of_a_cache(box, work):
    """A new user has no folder of it yet: whoever makes it finds it, as outside."""
    shutil.rmtree(box.home(".cache"), ignore_errors=True)
    assert work("""
        mkdir -p ~/.cache/go-build/00 ~/.m2/repository/org && echo object >~/.cache/go-build/00/a
        mkdir -m 700 ~/.npm && stat -c %a ~/.npm && echo index >~/.npm/index && cat ~/.npm/index
        [ -w ~/.cache/go-build ] && mkdir ~/.cache/go-build 2>/dev/null || cat ~/.cache/go-build/00/a
        """).split() == ["700", "index", "object"]
    assert os.path.getsize(box.home(".cache/go-build/00/a")) == len("object\n")
    assert os.path.isdir(box.home(".m2/repository/org"))
    assert os.stat(box.home(".npm")).st_uid == os.stat(box.home()).st_uid
    assert work("""
        [ -w ~/.cache ] && mkdir -p ~/.cache/pip/http && echo page >~/.cache/pip/http/1
        mkdir -p ~/.cache/composer/files ~/.gradle/workers ~/.gradle/native/25
        cd ~/.cache && cat pip/http/1 go-build/00/a""").split() == ["page", "object"]


def test_perl_modules(box, work):
    """cpanm unpacks, builds and logs in the home folder, whatever it installs, and wherever to."""
    needs("cpanm")
    box.identity.file(box.path("module/Makefile.PL"), "use ExtUtils::MakeMaker;\n"
                      "WriteMakefile(NAME => 'Every::Day', VERSION => '1.0');\n")
    box.identity.file(box.path("module/lib/Every/Day.pm"),
                      "package Every::Day;\nsub answer { 42 }\n1;\n")
    assert work("""
        cpanm --quiet --notest --local-lib /tmp/perl ./module >/dev/null 2>/tmp/said || cat /tmp/said
        perl -I/tmp/perl/lib/perl5 -MEvery::Day -e 'print Every::Day::answer()'""") == "42"


@pytest.mark.parametrize("script", [
    "mkdir ~/.cache ~/.cache/other", "mkdir ~/.m2 && touch ~/.m2/other", "touch ~/.npm",
    "mkdir ~/.gradle/caches", "ln -s /tmp ~/.npm"])
def test_what_is_not_made_for_a_cache(box, gate, script):
    """Only its folder is, and not where a link leads. The control is the test above."""
    shutil.rmtree(box.home(".cache"), ignore_errors=True)
    box.identity.folder(box.home("private"))
    os.symlink(box.home("private"), box.home(".gradle"))
    result = box.plain([box.world.command, "run", "--gate", gate, "-c", script])
    assert result.exit == 1 and "Read-only file system" in result.stderr, result
    for name in (".cache/other", ".m2/other", ".npm", "private/caches"):
        assert not os.path.lexists(box.home(name)), name


@pytest.mark.parametrize("tools, cache", [(".cargo", "registry"), ("go", "pkg/mod"),
                                          (".local/share/pnpm", "store")])
def test_a_cache_among_tools(box, work, tools, cache):
    """Its program comes first, from a folder that may only be read."""
    box.identity.file(box.home(tools, "bin/tool"), "#!/bin/sh\necho tool\n", 0o755)
    box.identity.file(box.home(tools, "settings"), "settings\n")
    box.identity.folder(box.home(tools, cache))
    assert work(f"""
        ~/{tools}/bin/tool && cat ~/{tools}/settings && ls ~/{tools} >/dev/null
        echo crate >~/{tools}/{cache}/crate && cat ~/{tools}/{cache}/crate
        if touch ~/{tools}/bin/tool 2>/dev/null; then echo tools can be changed; fi
        """).split() == ["tool", "settings", "crate"]
    assert os.path.exists(box.home(tools, cache, "crate"))


def test_the_lock_of_cargo(box, work):
    """Every build takes it. What is not there is not made, least of all as a folder."""
    box.identity.file(box.home(".cargo/bin/tool"), "")
    box.identity.file(box.home(".cargo/.package-cache"), "")
    assert work("flock ~/.cargo/.package-cache sh -c 'exec 3<>~/.cargo/.package-cache; echo locked'"
                ) == "locked\n"
    os.unlink(box.home(".cargo/.package-cache"))
    with pytest.raises(AssertionError, match="package-cache"):
        work("mkdir ~/.cargo/.package-cache")
    assert not os.path.lexists(box.home(".cargo/.package-cache"))


@pytest.mark.parametrize("given, flags", [(None, "-buildvcs=false"),
                                          ("-mod=mod", "-mod=mod -buildvcs=false"),
                                          ("-buildvcs=true", "-buildvcs=true")])
def test_go_is_told_that_there_is_no_repository(box, gate, given, flags):
    """The folder that stands for it is none, but Go asks git about it, and stops. In a repository
    nothing is said."""
    box.identity.folder(box.home("plain"))
    command = [box.world.command, "run", "--gate", gate, "-c", "echo $GOFLAGS"]
    env = {"GOFLAGS": given} if given else None
    assert box.plain(command, cwd=box.home("plain"), env=env).stdout == flags + "\n"
    assert box.plain(command, env=env).stdout == (given or "") + "\n"


def test_a_go_build_without_a_repository(box, gate):
    needs("go", "git")
    box.identity.file(box.home("plain/go.mod"), "module example.org/plain\n")
    box.identity.file(box.home("plain/main.go"), "package main\n\nfunc main() {}\n")
    result = box.plain([box.world.command, "run", "--gate", gate, "-c", "go build && ./plain"],
                       cwd=box.home("plain"), timeout=120)
    assert (result.exit, result.stderr) == (0, ""), result


TOOLCHAINS = (".pyenv/shims", ".nvm/versions/node/v20.0.0/bin", ".cargo/bin", ".local/bin",
              "go/bin", ".volta/bin", ".asdf/shims", ".local/share/mise/shims", ".rbenv/shims",
              "sdk/tool-1.0/bin")


def test_toolchains_in_the_home_folder(box, work):
    """A program of each manager, started by name, that reads a file beside it."""
    for number, folder in enumerate(TOOLCHAINS):
        library = box.home(os.path.dirname(folder), "lib", f"data{number}")
        box.identity.file(library, f"data {number}\n")
        box.identity.file(box.home(folder, f"tool{number}"),
                          f'#!/bin/sh\ncat "$(dirname "$0")/../lib/data{number}"\n', 0o755)
    path = ":".join([*(box.home(folder) for folder in TOOLCHAINS), "/usr/bin:/bin"])
    said = work("\n".join(f"tool{number}" for number in range(len(TOOLCHAINS))), env={"PATH": path})
    assert said.splitlines() == [f"data {number}" for number in range(len(TOOLCHAINS))]


def test_an_interactive_shell(box, work):
    box.identity.file(box.home(".bashrc"), "[ -f /usr/share/bash-completion/bash_completion ] && "
                      ". /usr/share/bash-completion/bash_completion\nalias hello='echo hello'\n"
                      "[ -f ~/.bash_aliases ] && . ~/.bash_aliases\nFROM_RC=yes\n")
    box.identity.file(box.home(".bash_aliases"), "alias bye='echo bye'\n")
    box.identity.file(box.home(".inputrc"), "set bell-style none\n")
    assert work("bash -ic 'echo $FROM_RC; shopt -s expand_aliases; alias bye' 2>/dev/null"
                ).splitlines() == ["yes", "alias bye='echo bye'"]


def test_zsh_with_completions(box, work):
    """What it has found out about them it keeps in a file, which it would make anew each time."""
    needs("zsh")
    box.identity.file(box.home(".zshrc"), "autoload -Uz compinit\ncompinit\n. ~/.zsh_aliases\n")
    box.identity.file(box.home(".zsh_aliases"), "alias hello='echo hello'\n")
    assert box.plain(["zsh", "-ic", "true"]).exit == 0
    assert os.path.exists(box.home(".zcompdump"))
    assert work("zsh -ic 'alias hello; whence -w compdef' 2>/dev/null").splitlines() == [
        "hello='echo hello'", "compdef: function"]


def test_in_the_home_folder(box, gate):
    """It can be entered, and started in; what is in it is allowed or asked about as elsewhere."""
    box.identity.file(box.home(".vimrc"), "set nocompatible\n")
    box.identity.file(box.home("private/notes"), "hunter2\n")
    script = "pwd; cat .vimrc; cd /; cd; cat .vimrc; cd ..; cd -; cat private/notes; echo *"
    result = box.plain([box.world.command, "run", "--gate", gate, "-c", script], cwd=box.home())
    home = box.home().rstrip("/")
    assert result.stdout.splitlines() == [home, *["set nocompatible"] * 2, home, "*"], result
    assert result.stderr.count("private/notes: Permission denied") == 1, result


def test_the_debugger(box, work):
    box.identity.file(box.path("d.c"), "int deep(int x) { return x + 1; }\n"
                      "int main(void) { return deep(41) - 42; }\n")
    box.identity.file(box.home(".gdbinit"), "set confirm off\n")
    assert "deep (x=41)" in work("gcc -g -o d d.c && gdb -q -batch -ex 'break deep' -ex run -ex bt ./d")


def test_the_editor(box, work):
    needs("vim")
    box.identity.file(box.home(".vimrc"), "set nocompatible\n")
    box.identity.file(box.path("text"), "one\n")
    assert work("vim -es -c 's/one/two/' -c 'wq' text </dev/null; cat text") == "two\n"


def test_the_pager(box, work):
    """It keeps what was searched for, on a terminal, and makes that file under another name first."""
    box.identity.file(box.path("text"), "".join(f"line {number}\n" for number in range(100)))
    needs("less", "script")
    assert "line 7" in work("printf '/line 7\\nq' | script -qec 'TERM=xterm less text' /dev/null; "
                            "test -s $LESSHISTFILE")


def test_what_programs_keep_elsewhere(box, work):
    """Neovim leaves no log in the project, and IPython starts without a folder at home."""
    show = "printf '%s ' \"$NVIM_LOG_FILE\" \"$IPYTHONDIR\"; "
    log, folder = work(show + "touch \"$NVIM_LOG_FILE\" && mkdir \"$IPYTHONDIR\"").split()
    assert log.startswith("/run/user/") and folder.startswith("/run/user/")
    if shutil.which("nvim", path="/usr/bin"):
        work("nvim -u NONE -i NONE --headless +q")
        assert not os.path.exists(box.path(".nvimlog"))
    box.identity.folder(box.home(".ipython"))
    assert work(show, env={"NVIM_LOG_FILE": "/tmp/log"}).split() == [log]
    work("[ -z \"$IPYTHONDIR\" ]")


def test_the_manual(box, work):
    needs("man")
    assert "sandbox" not in work("MANPAGER=cat man -P cat ls 2>/dev/null | head -3; "
                                 "apropos -l nothing-of-that-name 2>/dev/null || true")

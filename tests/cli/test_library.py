"""A program outside the tree builds against the installed header and library by pkg-config."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

PROGRAM = r"""
#include <sandbox.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  sb_error *error = sb_error_new();
  int fresh = strcmp(sb_error_code(error), "none") == 0 && *sb_error_message(error) == '\0' &&
              sb_error_hint(error) == NULL;
  sb_error_free(error);
  sb_error_free(NULL);
  printf("%s %s\n", sb_version(), fresh ? "fresh" : "stale");
  return 0;
}
"""


@pytest.fixture(scope="module")
def installed(build, tmp_path_factory):
    """The root of an installation, as a packager would make it."""
    if not shutil.which("meson"):
        pytest.skip("meson is not installed")
    root = tmp_path_factory.mktemp("root")
    subprocess.run(
        ["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", root], check=True
    )
    return root


@pytest.fixture(scope="module")
def library(installed):
    return next(installed.rglob("libsandbox.so"))


@pytest.fixture(scope="module")
def flags(installed):
    folder = next(installed.rglob("sandbox.pc")).parent
    environment = {
        **os.environ,
        "PKG_CONFIG_PATH": str(folder),
        "PKG_CONFIG_SYSROOT_DIR": str(installed),
    }
    output = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "sandbox"],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    return shlex.split(output)


def symbols(library):
    output = subprocess.run(
        ["nm", "-D", "--defined-only", library], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    return {line.split()[2].split("@")[0] for line in output.splitlines()}


def is_sanitized(library):
    needed = subprocess.run(["nm", "-D", library], stdout=subprocess.PIPE, text=True).stdout
    return "__asan_init" in needed or "__ubsan_" in needed


@pytest.mark.parametrize("language", ["c", "c++"])
def test_a_program_uses_the_library(library, flags, tmp_path, language):
    compiler = {"c": "cc", "c++": "c++"}[language]
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    if is_sanitized(library):
        pytest.skip("a sanitized library needs a sanitized program")
    source = tmp_path / "program.c"
    source.write_text(PROGRAM)
    command = [compiler, "-x", language, "-Wall", "-Wextra", "-Werror", source, "-x", "none"]
    subprocess.run([*command, "-o", tmp_path / "program", *flags], check=True)
    result = subprocess.run(
        [tmp_path / "program"],
        env={"LD_LIBRARY_PATH": str(library.parent)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert re.fullmatch(r"\d+\.\d+\.\d+ fresh\n", result.stdout)


EXAMPLES = {
    "run": (["echo hello; exit 3"], "exit code 3 after ", 0),
    "session": ([], "echo -> 0: one\nsh -> 2: two\nstats: yes\n", 0),
    "decide": (["make; $x"], "sandboxed: 1, ask a person: 0\n", 0),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(installed, library, flags, tmp_path, name):
    """They are the documentation: compiled as a reader would, and run."""
    if is_sanitized(library):
        pytest.skip("a sanitized library needs a sanitized program")
    words, expected, status = EXAMPLES[name]
    source = pathlib.Path(__file__).resolve().parents[2] / f"examples/{name}.c"
    subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", source, "-o", tmp_path / name, *flags],
                   check=True)
    command = next(path for path in installed.rglob("bin/sandbox"))
    project = tmp_path / "project"
    project.mkdir()
    done = subprocess.run(
        [tmp_path / name, *words], capture_output=True, text=True, cwd=project, timeout=60,
        env={"LD_LIBRARY_PATH": str(library.parent), "HOME": str(tmp_path),
             "PATH": f"{command.parent}:{os.environ['PATH']}"})
    assert done.returncode == status and done.stdout.startswith(expected), done


@pytest.mark.parametrize("mode", ["", "reap", "ignore"])
def test_the_caller_stays_as_it_was(box, build, library, mode):
    """Signals, folder, umask, descriptors, children; six threads at once; also if the caller takes
    every child, or ignores their ends."""
    program = shutil.copy(build / "tests/library/library-state", box.world.bin)
    folder = box.home("lib")
    box.identity.folder(folder)
    shutil.copy(library, os.path.join(folder, "libsandbox.so.0"))
    result = box.plain([program, box.world.command, *([mode] if mode else [])], timeout=60,
                       env={"LD_LIBRARY_PATH": folder})
    assert (result.exit, result.stdout) == (0, "as it was\n"), result


def test_symbols_have_versions(library):
    output = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", library],
                            check=True, stdout=subprocess.PIPE, text=True).stdout
    assert "sb_version@@SANDBOX_0\n" in output and "sb_run@@SANDBOX_0.2\n" in output


def test_only_the_public_functions_are_exported(installed, library):
    header = next(installed.rglob("include/sandbox.h")).read_text()
    header = re.sub(r"/\*.*?\*/|typedef void sb_event_function\(", "", header, flags=re.S)
    declared = set(re.findall(r"\b(sb_\w+)\(", header))
    assert declared == {name for name in symbols(library) if not name.startswith("SANDBOX_")}


def test_everything_is_installed(installed):
    files = {str(path.relative_to(installed)) for path in installed.rglob("*")}
    for ending in [
        "bin/sandbox",
        "share/man/man1/sandbox.1",
        "share/man/man1/sandbox-run.1",
        "share/bash-completion/completions/sandbox",
        "share/zsh/site-functions/_sandbox",
        "share/fish/vendor_completions.d/sandbox.fish",
        "libexec/sandbox/sandbox-toml",
        "dist-packages/sandbox.py",
    ]:
        assert any(name.endswith(ending) for name in files), ending

"""A program outside the tree builds against the installed header and library by pkg-config."""

import os
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


def test_only_the_public_functions_are_exported(installed, library):
    header = next(installed.rglob("include/sandbox.h")).read_text()
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
    ]:
        assert any(name.endswith(ending) for name in files), ending

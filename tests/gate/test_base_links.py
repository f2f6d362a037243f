"""Names of the base list that are links. People use them; and an earlier session may have planted one."""

import os

import pytest

import gates
from gates import lines


def link(box, target, path):
    box.identity.folder(os.path.dirname(path))
    os.symlink(target, path)
    box.identity.own(path)


def run(box, gate, script, **more):
    """With nobody's approval; gives what was printed and asked."""
    result, asked = gates.run(box, gate, ["/bin/sh", "-c", script], lambda event: gates.deny(), **more)
    return lines(result), {path for _, path in asked}


@pytest.mark.escape
@pytest.mark.parametrize("target", ["..", "../private", "{home}"])
def test_a_search_path_that_leads_elsewhere(box, gate, target):
    """A session in one project plants a link in the place of its virtual environment, which is active in
    another. The control: the environment itself is read."""
    private = box.identity.file(box.home("private", "notes"), "notes\n")
    tool = box.identity.file(box.home("work", "real", "bin", "tool"), "#!/bin/sh\necho tool\n", 0o755)
    planted = box.home("work", ".venv")
    path = {"PATH": f"{planted}/bin:{os.path.dirname(tool)}:/usr/bin:/bin"}
    link(box, target.format(home=box.home()), planted)
    said, asked = run(box, gate, f"cat {private}; tool", env=path)
    assert said == ["tool"] and private in asked, (said, asked)


@pytest.mark.escape
@pytest.mark.parametrize("target", [".config/systemd/user", ".config/sandbox", "", "work/pip"])
def test_a_cache_that_leads_elsewhere(box, gate, target):
    """Nothing is written where it leads to. The control: a cache that is a folder is written to."""
    box.identity.folder(box.home(target))
    box.identity.folder(box.home(".cache", "uv"))
    link(box, box.home(target), box.home(".cache", "pip"))
    script = f"echo planted >{box.home(target, 'planted')}; echo planted >{box.home('.cache', 'pip', 'planted')}; " \
             f"echo cached >{box.home('.cache', 'uv', 'cached')}; echo end"
    said, _ = run(box, gate, script)
    assert said == ["end"] and not os.path.exists(box.home(target, "planted")), said
    assert os.path.exists(box.home(".cache", "uv", "cached"))


def test_links_that_people_use(box, gate):
    """Settings in a folder of their own, and a cache on another disk: nobody is asked."""
    box.identity.file(box.home("dotfiles", "vimrc"), "set nowrap\n")
    box.identity.file(box.home("dotfiles", "nvim", "init.vim"), "set wrap\n")
    disk = os.path.join(os.path.dirname(box.home()), "disk", "pip")
    box.identity.folder(disk)
    link(box, "dotfiles/vimrc", box.home(".vimrc"))
    link(box, box.home("dotfiles", "nvim"), box.home(".config", "nvim"))
    link(box, disk, box.home(".cache", "pip"))
    script = f"cat {box.home('.vimrc')} {box.home('.config', 'nvim', 'init.vim')}; " \
             f"echo cached >{box.home('.cache', 'pip', 'file')}"
    said, asked = run(box, gate, script)
    assert said == ["set nowrap", "set wrap"] and not asked, (said, asked)
    assert os.path.exists(f"{disk}/file")

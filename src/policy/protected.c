/* Names that stay read-only inside a writable place, because a tool on the host runs or trusts them
 * later without asking. Pure data.
 *
 * The test for if_present_only = false is: would *creating* this name make a host tool execute what
 * it says, without the person asking for it? Each such name costs a placeholder folder at every
 * start while it does not exist, so everything else is only guarded where it exists. Sources that
 * run by nature (Makefile, package.json scripts, .github/workflows after a push) and documents that
 * agents read (AGENTS.md) cannot be blocked without blocking the work: a person reviews them, and
 * the end-of-session report lists them. */
#include "policy/policy.h"

#define IF_PRESENT .if_present_only = true
#define HOME_ONLY  .at_home = true
/* Also in somebody's dotfiles, which are often linked from the home folder. */
#define DOTFILE .if_present_only = true, .at_home = true

const struct protected_name protected_table[] = {
    /* git runs these at the person's next command. Other layouts (a .git file, worktrees, modules,
     * bare repositories) are found by code, not by name: whole folders there would stop commits. */
    {".git/hooks", "git runs hooks"},
    {".git/config", "git runs programs named in its configuration"},
    {".git/config.worktree", "git runs programs named in its configuration"},
    {".git/info/attributes", "attributes choose filter programs"},
    {".git/commondir", "points git at another configuration"},
    /* Only `git submodule`, which a person runs, reads it; but where it is, it is trusted. */
    {".gitmodules", "addresses and update commands of submodules", IF_PRESENT},
    {".husky", "git runs hooks", IF_PRESENT},
    {".githooks", "git runs hooks", IF_PRESENT},
    {".lefthook", "git runs hooks", IF_PRESENT},
    {"lefthook.yml", "git runs hooks", IF_PRESENT},
    {".lefthook.yml", "git runs hooks", IF_PRESENT},
    {"lefthook-local.yml", "git runs hooks", IF_PRESENT},
    {".pre-commit-config.yaml", "git runs hooks", IF_PRESENT},

    /* Editors run tasks and settings when the folder is opened */
    {".vscode", "Visual Studio Code runs tasks and programs named in settings"},
    {".idea", "JetBrains editors run configurations and file watchers"},
    {".fleet", "Fleet runs configurations", IF_PRESENT},
    {".zed", "Zed runs tasks and language servers named in settings"},
    {".helix", "Helix starts language servers and formatters named in settings"},
    {".devcontainer", "editors build and start containers from it"},
    {".devcontainer.json", "editors build and start containers from it"},
    {".vim", "vim settings of the project", IF_PRESENT},
    {".exrc", "vi and vim run it where exrc is set", IF_PRESENT},
    {".nvimrc", "neovim runs it where exrc is set", IF_PRESENT},
    {".nvim.lua", "neovim runs it where exrc is set", IF_PRESENT},
    {".vimrc", "vim runs it where exrc is set", IF_PRESENT},
    {".dir-locals.el", "Emacs evaluates it", IF_PRESENT},
    {".dir-locals-2.el", "Emacs evaluates it", IF_PRESENT},

    /* AI tools start servers and hooks from these */
    {".mcp.json", "agents start the servers it names"},
    {".claude", "Claude Code runs hooks and reads permissions"},
    {".claude.json", "Claude Code starts the servers it names", HOME_ONLY},
    {".cursor", "Cursor starts servers and reads rules"},
    {".codex", "Codex starts servers and reads permissions"},
    {".gemini", "Gemini CLI starts servers and runs hooks"},
    {".qwen", "Qwen Code starts servers"},
    {".windsurf", "Windsurf starts servers", IF_PRESENT},
    {".continue", "Continue starts servers"},
    {".kiro", "Kiro runs hooks"},
    {".roo", "Roo Code starts servers"},
    {".opencode", "opencode loads plug-ins"},
    {"opencode.json", "opencode starts the servers it names"},
    {"opencode.jsonc", "opencode starts the servers it names"},
    {"crush.json", "Crush starts the servers it names", IF_PRESENT},
    {".crush.json", "Crush starts the servers it names", IF_PRESENT},
    {".aider.conf.yml", "aider runs the commands it names"},

    /* What the shell runs on entering the folder. mise asks about a new file, but trusts a known
     * one whatever it says later. */
    {".envrc", "direnv runs it on entering the folder"},
    {"mise.toml", "mise runs hooks and sets PATH on entering the folder", IF_PRESENT},
    {".mise.toml", "mise runs hooks and sets PATH on entering the folder", IF_PRESENT},
    {".mise", "mise configuration", IF_PRESENT},
    {".autoenv.zsh", "autoenv runs it on entering the folder", IF_PRESENT},
    {".tool-versions", "versions that a manager installs", IF_PRESENT},
    {".nvmrc", "the version of Node to use", IF_PRESENT},
    {".python-version", "the version of Python to use", IF_PRESENT},
    {".ruby-version", "the version of Ruby to use", IF_PRESENT},

    /* Our own policy for this project */
    {".sandbox", "the sandbox's own policy"},

    /* In a writable home folder: start-up files of shells and sessions, programs on the PATH, and
     * settings that name programs. They run at the next login or command. */
    {".bashrc", "the shell runs it", DOTFILE},
    {".bash_profile", "the shell runs it", DOTFILE},
    {".bash_login", "the shell runs it", DOTFILE},
    {".bash_logout", "the shell runs it", DOTFILE},
    {".bash_aliases", "the shell runs it", DOTFILE},
    {".profile", "the shell runs it", DOTFILE},
    {".zshrc", "the shell runs it", DOTFILE},
    {".zshenv", "the shell runs it", DOTFILE},
    {".zprofile", "the shell runs it", DOTFILE},
    {".zlogin", "the shell runs it", DOTFILE},
    {".zlogout", "the shell runs it", DOTFILE},
    {".cshrc", "the shell runs it", HOME_ONLY},
    {".tcshrc", "the shell runs it", HOME_ONLY},
    {".kshrc", "the shell runs it", HOME_ONLY},
    {".config/fish", "the shell runs it", DOTFILE},
    {".config/nushell", "the shell runs it", HOME_ONLY},
    {".inputrc", "the shell binds keys to commands", HOME_ONLY},
    {".xprofile", "the desktop runs it", HOME_ONLY},
    {".xinitrc", "the desktop runs it", HOME_ONLY},
    {".xsession", "the desktop runs it", HOME_ONLY},
    {".xsessionrc", "the desktop runs it", HOME_ONLY},
    {".pam_environment", "sets variables at login", HOME_ONLY},
    {".config/autostart", "the desktop runs it", HOME_ONLY},
    {".config/systemd", "user services", HOME_ONLY},
    {".config/environment.d", "sets variables at login", HOME_ONLY},
    {".local/share/systemd", "user services", HOME_ONLY},
    {".local/share/applications", "programs behind desktop icons", HOME_ONLY},
    {".local/share/dbus-1", "services started by the bus", HOME_ONLY},
    {".local/bin", "programs on the PATH", HOME_ONLY},
    {".cargo/bin", "programs on the PATH", HOME_ONLY},
    {".cargo/config.toml", "cargo runs the programs it names", HOME_ONLY},
    {".gitconfig", "git runs programs named in its configuration", DOTFILE},
    {".config/git", "git runs programs named in its configuration", HOME_ONLY},
    {".ssh", "ssh runs programs named in its configuration", HOME_ONLY},
    {".tmux.conf", "tmux runs it", DOTFILE},
    {".config/tmux", "tmux runs it", HOME_ONLY},
    {".config/nvim", "neovim runs it", HOME_ONLY},
    {".emacs", "Emacs runs it", HOME_ONLY},
    {".emacs.d", "Emacs runs it", HOME_ONLY},
    {".config/emacs", "Emacs runs it", HOME_ONLY},
    {".config/Code", "settings and extensions of an editor", HOME_ONLY},
    {".vscode-server", "an editor's server", HOME_ONLY},
    {".pythonrc.py", "Python runs it", HOME_ONLY},
    {".gdbinit", "gdb runs it", HOME_ONLY},
    {".lldbinit", "lldb runs it", HOME_ONLY},
    {".config/gdb", "gdb runs it", HOME_ONLY},
    {".npmrc", "npm runs scripts with the shell it names", DOTFILE},
    {".curlrc", "curl writes where it says", HOME_ONLY},
    {".wgetrc", "wget writes where it says", HOME_ONLY},
    {0},
};

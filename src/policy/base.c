/* What every command may use in dynamic mode without a question: the system, the toolchains of this
 * machine wherever they are installed, their caches, and the settings of everyday tools. Whoever
 * adds a line: nothing here may hold a credential, or the secrets table must name it. */
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/path.h"
#include "core/strv.h"
#include "policy/git-config.h"
#include "policy/rules.h"

struct base {
  enum rule_kind kind;
  const char *path; /* "~/": below the home folder */
  const char *why;
  bool at_once; /* mounted at the start; the rest when something first touches it */
  bool is_file; /* only if it is there: in the place of what may be written folders can be made */
};

static const struct base table[] = {
    /* the system */
    {RULE_READ, "/usr", "programs and libraries", true},
    {RULE_READ, "/bin", "programs", true},
    {RULE_READ, "/sbin", "programs", true},
    {RULE_READ, "/lib", "libraries", true},
    {RULE_READ, "/lib32", "libraries", true},
    {RULE_READ, "/lib64", "the loader", true},
    {RULE_READ, "/libx32", "libraries", true},
    {RULE_READ, "/etc", "settings of the system", true},
    {RULE_READ, "/nix/store", "programs and libraries", true},
    {RULE_READ, "/nix/var/nix/profiles", "programs and libraries"},
    {RULE_READ, "/gnu/store", "programs and libraries", true},
    {RULE_READ, "/home/linuxbrew/.linuxbrew", "programs and libraries"},
    {RULE_READ, "/snap", "programs and libraries"},
    {RULE_READ, "/var/cache/man", "the index of manual pages"},
    {RULE_READ, "/var/cache/fontconfig", "the index of fonts"},
    {RULE_READ, "/var/lib/ca-certificates", "certificates of authorities"},
    {RULE_READ, "/var/lib/dpkg", "which packages are installed"},
    {RULE_READ, "/var/lib/apt", "which packages can be installed"},
    {RULE_READ, "/var/cache/apt", "which packages can be installed"},
    {RULE_READ, "/var/lib/alternatives", "which packages are installed"},
    {RULE_READ, "/var/lib/rpm", "which packages are installed"},
    {RULE_READ, "/var/lib/pacman", "which packages are installed"},
    {RULE_READ, "/var/lib/texmf", "TeX formats"},
    {RULE_READ, "/var/lib/gems", "Ruby libraries"},
    {RULE_READ, "/.dockerenv", "an empty file: this is a container"},
    /* toolchains in the home folder */
    {RULE_READ, "~/.local/bin", "programs of the user"},
    {RULE_READ, "~/.local/lib", "libraries of the user"},
    {RULE_READ, "~/.local/include", "libraries of the user"},
    {RULE_READ, "~/.local/pipx", "pipx"},
    {RULE_READ, "~/.local/share/pipx", "pipx"},
    {RULE_READ, "~/.local/share/uv", "uv"},
    {RULE_READ, "~/.local/share/fnm", "fnm"},
    {RULE_READ, "~/.local/share/mise", "mise"},
    {RULE_READ, "~/.local/share/rtx", "rtx"},
    {RULE_READ, "~/.local/share/pnpm", "pnpm"},
    {RULE_READ, "~/.local/share/virtualenvs", "pipenv"},
    {RULE_READ, "~/.local/share/man", "manual pages of the user"},
    {RULE_READ, "~/.local/share/bash-completion", "completions"},
    {RULE_READ, "~/.local/share/fonts", "fonts"},
    {RULE_READ, "~/.local/share/nvim", "plugins of the editor"},
    {RULE_READ, "~/.config/mise", "mise"},
    {RULE_READ, "~/.pyenv", "pyenv"},
    {RULE_READ, "~/.virtualenvs", "virtualenvwrapper"},
    {RULE_READ, "~/.poetry", "poetry"},
    {RULE_READ, "~/.rye", "rye"},
    {RULE_READ, "~/.pixi", "pixi"},
    {RULE_READ, "~/.conda", "conda"},
    {RULE_READ, "~/miniconda3", "conda"},
    {RULE_READ, "~/anaconda3", "conda"},
    {RULE_READ, "~/miniforge3", "conda"},
    {RULE_READ, "~/mambaforge", "conda"},
    {RULE_READ, "~/micromamba", "conda"},
    {RULE_READ, "~/.nvm", "nvm"},
    {RULE_READ, "~/.fnm", "fnm"},
    {RULE_READ, "~/.volta", "volta"},
    {RULE_READ, "~/.nodenv", "nodenv"},
    {RULE_READ, "~/.n", "n"},
    {RULE_READ, "~/.npm-global", "npm"},
    {RULE_READ, "~/.npm-packages", "npm"},
    {RULE_READ, "~/.yarn", "yarn"},
    {RULE_READ, "~/.config/yarn", "yarn"},
    {RULE_READ, "~/.cache/node/corepack", "corepack"},
    {RULE_READ, "~/.bun", "bun"},
    {RULE_READ, "~/.deno", "deno"},
    {RULE_READ, "~/.cargo", "cargo"},
    {RULE_READ, "~/.rustup", "rustup"},
    {RULE_READ, "~/go", "Go"},
    {RULE_READ, "~/.goenv", "goenv"},
    {RULE_READ, "~/.gvm", "gvm"},
    {RULE_READ, "~/.sdkman", "sdkman"},
    {RULE_READ, "~/.jenv", "jenv"},
    {RULE_READ, "~/.jabba", "jabba"},
    {RULE_READ, "~/.jdks", "Java"},
    {RULE_READ, "~/.konan", "Kotlin"},
    {RULE_READ, "~/.rbenv", "rbenv"},
    {RULE_READ, "~/.rvm", "rvm"},
    {RULE_READ, "~/.gem", "gem"},
    {RULE_READ, "~/.local/share/gem", "gem"},
    {RULE_READ, "~/.asdf", "asdf"},
    {RULE_READ, "~/.ghcup", "ghcup"},
    {RULE_READ, "~/.cabal", "cabal"},
    {RULE_READ, "~/.opam", "opam"},
    {RULE_READ, "~/.juliaup", "juliaup"},
    {RULE_READ, "~/.julia", "julia"},
    {RULE_READ, "~/.dotnet", ".NET"},
    {RULE_READ, "~/.nuget/packages", ".NET"},
    {RULE_READ, "~/.krew", "krew"},
    {RULE_READ, "~/.tfenv", "tfenv"},
    {RULE_READ, "~/.nix-profile", "nix"},
    {RULE_READ, "~/.local/state/nix/profiles", "nix"},
    {RULE_READ, "~/.linuxbrew", "homebrew"},
    {RULE_READ, "~/.config/composer", "composer"},
    {RULE_READ, "~/.sonar", "sonar"},
    {RULE_READ, "~/.cmake", "CMake"},
    {RULE_READ, "~/.cache/ms-playwright", "browsers for tests"},
    {RULE_READ, "~/.cache/puppeteer", "browsers for tests"},
    {RULE_READ, "~/.cache/Cypress", "browsers for tests"},
    {RULE_READ, "~/.cache/huggingface", "models"},
    {RULE_READ, "~/.cache/torch", "models"},
    {RULE_READ, "~/nltk_data", "models"},
    /* caches: what a build downloads or makes once */
    {RULE_WRITE, "~/.cache/pip", "cache"},
    {RULE_WRITE, "~/.cache/uv", "cache"},
    {RULE_WRITE, "~/.cache/pypoetry", "cache"},
    {RULE_WRITE, "~/.cache/pre-commit", "cache"},
    {RULE_WRITE, "~/.cache/node-gyp", "cache"},
    {RULE_WRITE, "~/.cache/yarn", "cache"},
    {RULE_WRITE, "~/.cache/pnpm", "cache"},
    {RULE_WRITE, "~/.cache/go-build", "cache"},
    {RULE_WRITE, "~/.cache/ccache", "cache"},
    {RULE_WRITE, "~/.cache/sccache", "cache"},
    {RULE_WRITE, "~/.cache/bazel", "cache"},
    {RULE_WRITE, "~/.cache/zig", "cache"},
    {RULE_WRITE, "~/.cache/composer", "cache"},
    {RULE_WRITE, "~/.cpanm", "cache"},
    {RULE_WRITE, "~/.ccache", "cache"},
    {RULE_WRITE, "~/.npm", "cache"},
    {RULE_WRITE, "~/.local/share/pnpm/store", "cache"},
    {RULE_WRITE, "~/go/pkg/mod", "cache"},
    {RULE_WRITE, "~/.cargo/registry", "cache"},
    {RULE_WRITE, "~/.cargo/.package-cache", "a lock on the cache", .is_file = true},
    {RULE_WRITE, "~/.cargo/git", "cache"},
    {RULE_WRITE, "~/.m2/repository", "cache"},
    {RULE_WRITE, "~/.gradle/caches", "cache"},
    {RULE_WRITE, "~/.gradle/wrapper", "cache"},
    {RULE_WRITE, "~/.gradle/daemon", "cache"},
    {RULE_WRITE, "~/.gradle/workers", "cache"},
    {RULE_WRITE, "~/.gradle/native", "cache"},
    {RULE_WRITE, "~/.gradle/notifications", "cache"},
    {RULE_WRITE, "~/.gradle/.tmp", "cache"},
    /* settings of everyday tools */
    {RULE_READ, "~/.gitconfig", "git"},
    {RULE_READ, "~/.gitignore", "git"},
    {RULE_READ, "~/.gitignore_global", "git"},
    {RULE_READ, "~/.gitattributes", "git"},
    {RULE_READ, "~/.config/git/config", "git"},
    {RULE_READ, "~/.config/git/ignore", "git"},
    {RULE_READ, "~/.config/git/attributes", "git"},
    {RULE_READ, "~/.bashrc", "the shell"},
    {RULE_READ, "~/.bash_profile", "the shell"},
    {RULE_READ, "~/.bash_login", "the shell"},
    {RULE_READ, "~/.bash_logout", "the shell"},
    {RULE_READ, "~/.bash_aliases", "the shell"},
    {RULE_READ, "~/.bash_completion", "the shell"},
    {RULE_READ, "~/.bash_completion.d", "the shell"},
    {RULE_READ, "~/.profile", "the shell"},
    {RULE_READ, "~/.zshenv", "the shell"},
    {RULE_READ, "~/.zshrc", "the shell"},
    {RULE_READ, "~/.zprofile", "the shell"},
    {RULE_READ, "~/.zlogin", "the shell"},
    {RULE_READ, "~/.oh-my-zsh", "the shell"},
    {RULE_READ, "~/.zcompdump", "the shell"},
    {RULE_READ, "~/.zsh_aliases", "the shell"},
    {RULE_READ, "~/.zfunc", "the shell"},
    {RULE_READ, "~/.p10k.zsh", "the shell"},
    {RULE_READ, "~/.local/share/zinit", "the shell"},
    {RULE_READ, "~/.fzf", "the shell"},
    {RULE_READ, "~/.fzf.bash", "the shell"},
    {RULE_READ, "~/.fzf.zsh", "the shell"},
    {RULE_READ, "~/.config/fish", "the shell"},
    {RULE_READ, "~/.config/starship.toml", "the shell"},
    {RULE_READ, "~/.inputrc", "keys"},
    {RULE_READ, "~/.dircolors", "colours"},
    {RULE_READ, "~/.terminfo", "terminals"},
    {RULE_READ, "~/.hushlogin", "the shell"},
    {RULE_READ, "~/.selected_editor", "the editor"},
    {RULE_READ, "~/.vimrc", "the editor"},
    {RULE_READ, "~/.vim", "the editor"},
    {RULE_READ, "~/.config/vim", "the editor"},
    {RULE_READ, "~/.config/nvim", "the editor"},
    {RULE_READ, "~/.nanorc", "the editor"},
    {RULE_READ, "~/.config/nano", "the editor"},
    {RULE_READ, "~/.emacs", "the editor"},
    {RULE_READ, "~/.editorconfig", "the editor"},
    {RULE_READ, "~/.gdbinit", "the debugger"},
    {RULE_READ, "~/.config/gdb", "the debugger"},
    {RULE_READ, "~/.lesskey", "the pager"},
    {RULE_READ, "~/.manpath", "manual pages"},
    {RULE_READ, "~/.screenrc", "screen"},
    {RULE_READ, "~/.tmux.conf", "tmux"},
    {RULE_READ, "~/.config/tmux", "tmux"},
    {RULE_READ, "~/.config/ccache", "ccache"},
    {RULE_READ, "~/.config/bat", "bat"},
    {RULE_READ, "~/.config/ripgrep", "ripgrep"},
    {RULE_READ, "~/.ripgreprc", "ripgrep"},
    {RULE_READ, "~/.ignore", "search tools"},
    {RULE_READ, "~/.ctags.d", "ctags"},
    {RULE_READ, "~/.clang-format", "clang-format"},
    {RULE_READ, "~/.indent.pro", "indent"},
    {RULE_READ, "~/.pylintrc", "pylint"},
    {RULE_READ, "~/.config/flake8", "flake8"},
    {RULE_READ, "~/.config/black", "black"},
    {RULE_READ, "~/.config/htop", "htop"},
    {RULE_READ, "~/.config/procps", "top"},
    {RULE_READ, "~/.toprc", "top"},
    {RULE_READ, "~/.config/matplotlib", "matplotlib"},
    {RULE_READ, "~/.cache/matplotlib", "matplotlib"},
    {RULE_READ, "~/.config/fontconfig", "fonts"},
    {RULE_READ, "~/.cache/fontconfig", "fonts"},
    {RULE_READ, "~/.fonts", "fonts"},
    {RULE_READ, "~/.sqliterc", "sqlite"},
    {RULE_READ, "~/.pdbrc", "the debugger of Python"},
    {RULE_READ, "~/.pythonrc", "Python"},
    {RULE_READ, "~/.pythonrc.py", "Python"},
    {RULE_READ, "~/.config/ruff", "ruff"},
    {RULE_READ, "~/.config/clangd", "clangd"},
    {RULE_READ, "~/.tigrc", "tig"},
    {RULE_READ, "~/.yarnrc", "yarn"},
    {RULE_READ, "~/.Rprofile", "R"},
    {RULE_READ, "~/.ghci", "ghci"},
};

/* Their names say what is installed, as the list of packages does, and compilers look for parts of
 * themselves there (clang and cmake read /opt at every start). What is in them stays a question. */
static const char *const listed[] = {"/opt"};

bool policy_base_lists(const char *path) {
  for (size_t i = 0; i < ARRAY_SIZE(listed); i++) {
    if (strcmp(path, listed[i]) == 0)
      return true;
  }
  return false;
}

struct adding {
  struct policy *policy;
  const struct policy_context *context;
  size_t first, end; /* the rules that are not built in */
  bool has_project;  /* as a writable place */
};

/* Whatever somebody wrote about a folder holds for all that is below it: a base rule, though more
 * specific, must not take a part of it back. The same holds for the project, if it is a place of
 * its own: who works in /usr still needs its programs. */
static bool is_spoken_for(const struct adding *adding, const char *path) {
  if (adding->has_project && path_is_under(path, adding->context->project))
    return true;
  for (size_t i = adding->first; i < adding->end; i++) {
    const struct rule *rule = &adding->policy->rules[i];
    if (rule->origin.store != STORE_BUILTIN && rule->kind <= RULE_HIDE && rule_matches(rule, path))
      return true;
  }
  return false;
}

static void push(const struct adding *adding, const struct rule *rule) {
  if (!is_spoken_for(adding, rule->pattern))
    rules_push(adding->policy, rule);
}

static bool is_home(const struct policy_context *context, const char *path) {
  return (context->home && path_is_under(context->home, path)) ||
         (context->account_home && path_is_under(context->account_home, path));
}

/* "…/sdk/bin" belongs to "…/sdk", unless that is a place where people keep everything. */
static const char *root_of(struct policy *policy, const struct policy_context *context,
                           const char *folder) {
  _cleanup_free_ char *above = path_parent(folder);
  const char *name = path_base(folder);
  bool is_bin = strcmp(name, "bin") == 0 || strcmp(name, "sbin") == 0 || strcmp(name, "shims") == 0;
  bool large =
      path_depth(above) < 2 || is_home(context, above) || path_is_under(context->project, above);
  return arena_strdup(&policy->strings, is_bin && !large ? above : folder);
}

/* Programs that the user can start by name. */
static void add_search_path(const struct adding *adding) {
  const char *value = context_variable(adding->context, "PATH");
  while (value && *value) {
    size_t length = strcspn(value, ":");
    _cleanup_free_ char *part = xstrndup(value, length);
    value += length + (value[length] == ':');
    if (part[0] != '/')
      continue;
    _cleanup_free_ char *folder = path_normalize(part);
    if (path_depth(folder) < 1 || is_home(adding->context, folder))
      continue;
    push(adding, &(struct rule){.kind = RULE_READ,
                                .pattern = root_of(adding->policy, adding->context, folder),
                                .written = "$PATH",
                                .why = "programs in $PATH",
                                .when_touched = true});
  }
}

/* What the person's own git configuration names is read by every git command. It is a rule for that
 * name alone: nothing that is hidden, or would be asked about as a secret, is opened by it. */
static void add_git_settings(const struct adding *adding) {
  const struct policy_context *context = adding->context;
  _cleanup_strv_ struct strv paths = {0};
  git_config_named(context, &paths);
  STRV_FOREACH (path, &paths) {
    struct decision decision = policy_decide(adding->policy, *path, ACCESS_READ);
    if (decision.verdict != VERDICT_ASK || decision.secret || path_depth(*path) < 2 ||
        is_home(context, *path) || path_is_under(context->project, *path))
      continue;
    push(adding, &(struct rule){.kind = RULE_READ,
                                .pattern = arena_strdup(&adding->policy->strings, *path),
                                .written = "git configuration",
                                .why = "named in your git configuration",
                                .when_touched = true});
  }
}

static bool is_file(const char *path) {
  struct stat status;
  return lstat(path, &status) == 0 && S_ISREG(status.st_mode);
}

void policy_add_base(struct policy *policy, const struct policy_context *context) {
  struct adding adding = {.policy = policy, .context = context, .end = policy->rule_count};
  for (; adding.first < adding.end; adding.first++) {
    const struct rule *rule = &policy->rules[adding.first];
    if (rule->origin.store != STORE_BUILTIN)
      break;
    adding.has_project |= rule->kind == RULE_WRITE && strcmp(rule->pattern, context->project) == 0;
  }
  for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
    const char *path = table[i].path;
    if (path[0] == '~' && !context->home)
      continue;
    const char *pattern =
        path[0] == '/' ? path : arena_concat(&policy->strings, context->home, path + 1);
    if (table[i].is_file && !is_file(pattern))
      continue;
    push(&adding, &(struct rule){.kind = table[i].kind,
                                 .pattern = pattern,
                                 .written = path,
                                 .why = table[i].why,
                                 .when_touched = !table[i].at_once});
  }
  add_search_path(&adding);
  add_git_settings(&adding);
}

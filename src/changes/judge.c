/* What a changed name means; see judge.h. The tables are the place for new names: the protected
 * ones are policy's, here is what cannot be blocked without blocking the work. */
#include "changes/judge.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/cleanup.h"
#include "core/escape.h"
#include "core/path.h"
#include "policy/policy.h"

/* ---- names that a tool of the host executes later ---- */

/* `name` is a last component ("Makefile", "*.mk"), or with a slash at its end a folder anywhere on
 * the way ("node_modules/.bin/"). */
static const struct {
  const char *name, *reason;
} run_later[] = {
    {"package.json", "npm runs its scripts"},
    {"package-lock.json", "names what npm downloads and runs"},
    {"yarn.lock", "names what yarn downloads and runs"},
    {"pnpm-lock.yaml", "names what pnpm downloads and runs"},
    {".yarnrc.yml", "yarn loads the plug-ins it names"},
    {".pnpmfile.cjs", "pnpm runs it on install"},
    {".npmrc", "npm takes its registry and shell from it"},
    {"Gruntfile.js", "grunt runs it"},
    {"gulpfile.js", "gulp runs it"},
    {"webpack.config.js", "webpack runs it"},
    {"vite.config.js", "vite runs it"},
    {"vite.config.ts", "vite runs it"},
    {"jest.config.js", "jest runs it"},
    {"eslint.config.js", "eslint and editors run it"},
    {".eslintrc.js", "eslint and editors run it"},
    {"Makefile", "make runs it"},
    {"makefile", "make runs it"},
    {"GNUmakefile", "make runs it"},
    {"*.mk", "make runs it"},
    {"CMakeLists.txt", "cmake runs it"},
    {"*.cmake", "cmake runs it"},
    {"meson.build", "meson runs it"},
    {"configure", "run before a build"},
    {"configure.ac", "becomes configure"},
    {"BUILD", "bazel runs its rules"},
    {"BUILD.bazel", "bazel runs its rules"},
    {"WORKSPACE", "bazel runs its rules"},
    {"Justfile", "just runs it"},
    {"justfile", "just runs it"},
    {"Taskfile.yml", "task runs it"},
    {"Rakefile", "rake runs it"},
    {"Gemfile", "bundler runs it"},
    {"*.gemspec", "bundler runs it"},
    {"conftest.py", "pytest runs it"},
    {"noxfile.py", "nox runs it"},
    {"tox.ini", "tox runs the commands it names"},
    {"setup.py", "pip runs it"},
    {"setup.cfg", "pip and test runners read commands from it"},
    {"pyproject.toml", "names the build program that pip runs"},
    {"requirements.txt", "names what pip downloads and runs"},
    {"sitecustomize.py", "Python runs it at every start"},
    {"usercustomize.py", "Python runs it at every start"},
    {"*.pth", "Python runs its import lines at every start"},
    {"manage.py", "Django's command"},
    {"build.rs", "cargo runs it"},
    {"Cargo.toml", "names the programs that cargo builds and runs"},
    {"rust-toolchain.toml", "chooses the compiler that rustup runs"},
    {".cargo/", "cargo runs the programs its configuration names"},
    {"build.gradle", "gradle runs it"},
    {"build.gradle.kts", "gradle runs it"},
    {"settings.gradle", "gradle runs it"},
    {"gradlew", "run instead of gradle"},
    {"pom.xml", "maven runs the plug-ins it names"},
    {"mvnw", "run instead of maven"},
    {"build.sbt", "sbt runs it"},
    {"build.zig", "zig runs it"},
    {"mix.exs", "mix runs it"},
    {"Dockerfile", "docker builds run it"},
    {"docker-compose.yml", "docker compose starts what it names"},
    {"compose.yaml", "docker compose starts what it names"},
    {"Vagrantfile", "vagrant runs it"},
    {"flake.nix", "nix evaluates it"},
    {"shell.nix", "nix-shell evaluates it"},
    {"default.nix", "nix evaluates it"},
    {"Jenkinsfile", "the build server runs it"},
    {".gitlab-ci.yml", "the build server runs it"},
    {".travis.yml", "the build server runs it"},
    {"azure-pipelines.yml", "the build server runs it"},
    {".github/workflows/", "the build server runs it after a push"},
    {".github/actions/", "the build server runs it after a push"},
    {".circleci/", "the build server runs it"},
    {"node_modules/.bin/", "programs that npm puts on the PATH"},
    {"venv/bin/", "programs of a Python environment"},
    {".venv/bin/", "programs of a Python environment"},
    {"vendor/bin/", "programs of PHP packages"},
    {".gitattributes", "chooses filter and diff programs"},
    {"AGENTS.md", "agents follow it"},
    {"CLAUDE.md", "agents follow it"},
    {"GEMINI.md", "agents follow it"},
    {".cursorrules", "agents follow it"},
};

/* git's bookkeeping changes with every command that is run inside; only what it executes is worth
 * a line, and that is in the protected table. */
static const char *const never_run[] = {".git/"};

static bool is_on_the_way(const char *path, const char *folders) {
  size_t length = strlen(folders);
  for (const char *at = path; at; at = strchr(at, '/')) {
    at += *at == '/';
    if (strncmp(at, folders, length) == 0 && at[length])
      return true;
  }
  return false;
}

static bool name_fits(const char *path, const char *name) {
  size_t length = strlen(name);
  if (name[length - 1] == '/')
    return is_on_the_way(path, name);
  const char *base = path_base(path);
  if (name[0] != '*')
    return strcmp(base, name) == 0;
  size_t base_length = strlen(base);
  return base_length >= length - 1 && strcmp(base + base_length - (length - 1), name + 1) == 0;
}

static const char *run_later_reason(const char *path) {
  for (size_t i = 0; i < ARRAY_SIZE(never_run); i++)
    if (name_fits(path, never_run[i]))
      return NULL;
  for (size_t i = 0; i < ARRAY_SIZE(run_later); i++)
    if (name_fits(path, run_later[i].name))
      return run_later[i].reason;
  return NULL;
}

/* ---- protected names, at any depth: an editor may be opened on a subfolder ---- */

static bool is_or_below(const char *path, const char *name) {
  size_t length = strlen(name);
  return strncmp(path, name, length) == 0 && (path[length] == '\0' || path[length] == '/');
}

static const char *protected_at(const char *path, bool at_home) {
  for (const struct protected_name *row = protected_table; row->name; row++)
    if ((at_home || !row->at_home) && is_or_below(path, row->name))
      return row->why;
  return NULL;
}

static const char *protected_reason(const char *path, bool at_home) {
  const char *reason = protected_at(path, at_home);
  for (const char *slash = strchr(path, '/'); slash && !reason; slash = strchr(slash + 1, '/'))
    reason = protected_at(slash + 1, false);
  return reason;
}

/* ---- hooks, repositories, links ---- */

/* git comes with them, and never runs them. */
static bool is_sample(const char *path, mode_t mode) {
  _cleanup_free_ char *folder = path_parent(path);
  return S_ISREG(mode) && path_ends_with(path, ".sample") &&
         strcmp(path_base(folder), "hooks") == 0;
}

static bool is_hook(const char *path, mode_t mode) {
  static const char *const folders[] = {"hooks/", ".husky/", ".githooks/", ".lefthook/"};
  if (!S_ISREG(mode) || !(mode & 0111))
    return false;
  for (size_t i = 0; i < ARRAY_SIZE(folders); i++)
    if (is_on_the_way(path, folders[i]))
      return true;
  return false;
}

static bool is_nested_git(const char *path) {
  return strchr(path, '/') && strcmp(path_base(path), ".git") == 0;
}

/* Lexically: a link that passes through another link is judged where that one is. */
static bool leads_outside(const struct judged *judged) {
  if (!judged->link)
    return false;
  _cleanup_free_ char *absolute = path_join(judged->place, judged->path);
  _cleanup_free_ char *folder = path_parent(absolute);
  _cleanup_free_ char *target = path_join(folder, judged->link);
  for (size_t i = 0; i < judged->place_count; i++)
    if (path_is_under(target, judged->places[i]))
      return false;
  return true;
}

/* ---- names that deceive ---- */

bool character_deceives(unsigned code_point) {
  static const struct {
    unsigned first, last;
  } ranges[] = {
      {0x00, 0x1f},     {0x7f, 0x9f},       {0xad, 0xad},       {0x034f, 0x034f}, {0x061c, 0x061c},
      {0x115f, 0x1160}, {0x17b4, 0x17b5},   {0x180b, 0x180f},   {0x200b, 0x200f}, {0x2028, 0x202e},
      {0x2060, 0x206f}, {0x3164, 0x3164},   {0xfe00, 0xfe0f},   {0xfeff, 0xfeff}, {0xffa0, 0xffa0},
      {0xfff9, 0xfffb}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
  };
  for (size_t i = 0; i < ARRAY_SIZE(ranges); i++)
    if (code_point >= ranges[i].first && code_point <= ranges[i].last)
      return true;
  return false;
}

/* True if a name has such a character or is not UTF-8. */
static bool name_deceives(const char *name) {
  size_t length = strlen(name);
  for (size_t i = 0; i < length;) {
    unsigned code_point;
    size_t size = utf8_decode(name + i, length - i, &code_point);
    if (size == 0 || character_deceives(code_point))
      return true;
    i += size;
  }
  return false;
}

/* ---- the judgement ---- */

static unsigned flags_of_mode(mode_t mode) {
  static const struct {
    mode_t type;
    unsigned flag;
  } types[] = {{S_IFIFO, CHANGE_FIFO},
               {S_IFSOCK, CHANGE_SOCKET},
               {S_IFCHR, CHANGE_DEVICE},
               {S_IFBLK, CHANGE_DEVICE}};
  unsigned flags = (mode & S_ISUID ? CHANGE_SETUID : 0) | (mode & S_ISVTX ? CHANGE_STICKY : 0);
  /* On a folder it only hands the group on. */
  if ((mode & S_ISGID) && !S_ISDIR(mode))
    flags |= CHANGE_SETGID;
  for (size_t i = 0; i < ARRAY_SIZE(types); i++)
    if ((mode & S_IFMT) == types[i].type)
      flags |= types[i].flag;
  return flags;
}

struct judgement change_judge(const struct judged *judged) {
  struct judgement judgement = {0};
  bool sample = is_sample(judged->path, judged->mode);
  const char *protected = sample ? NULL : protected_reason(judged->path, judged->at_home);
  const char *run = S_ISDIR(judged->mode) ? NULL : run_later_reason(judged->path);
  judgement.reason = protected ? protected : run;
  judgement.flags |= protected ? CHANGE_PROTECTED : run ? CHANGE_RUN_LATER : 0;
  if (judged->kind == CHANGE_DELETED)
    return judgement; /* what is gone cannot be run, opened or misread */
  judgement.flags |= flags_of_mode(judged->mode);
  if (!sample && is_hook(judged->path, judged->mode))
    judgement.flags |= CHANGE_HOOK;
  if (judged->kind == CHANGE_CREATED && is_nested_git(judged->path))
    judgement.flags |= CHANGE_NESTED_GIT;
  if (leads_outside(judged))
    judgement.flags |= CHANGE_LINK_OUTSIDE;
  if (name_deceives(judged->path))
    judgement.flags |= CHANGE_STRANGE_NAME;
  return judgement;
}

/* ---- names ---- */

static const struct {
  enum change_flag flag;
  const char *name, *text;
} flag_rows[CHANGE_FLAG_COUNT] = {
    {CHANGE_SETUID, "setuid", "runs with its owner's rights"},
    {CHANGE_SETGID, "setgid", "runs with its group's rights"},
    {CHANGE_FIFO, "fifo", "a FIFO: a program that opens it waits"},
    {CHANGE_SOCKET, "socket", "a socket"},
    {CHANGE_DEVICE, "device", "a device"},
    {CHANGE_LINK_OUTSIDE, "link-outside", "a link that leads outside"},
    {CHANGE_HOOK, "hook", "an executable hook"},
    {CHANGE_NESTED_GIT, "nested-git", "a repository inside the project"},
    {CHANGE_STRANGE_NAME, "strange-name", "invisible or control characters in its name"},
    {CHANGE_PROTECTED, "protected", "a protected name"},
    {CHANGE_RUN_LATER, "run-later", "executed later"},
    {CHANGE_STICKY, "sticky", "has the sticky bit"},
};

const char *change_flag_name(enum change_flag flag) {
  for (size_t i = 0; i < CHANGE_FLAG_COUNT; i++)
    if (flag_rows[i].flag == flag)
      return flag_rows[i].name;
  return "unknown";
}

const char *change_flag_text(enum change_flag flag) {
  for (size_t i = 0; i < CHANGE_FLAG_COUNT; i++)
    if (flag_rows[i].flag == flag)
      return flag_rows[i].text;
  return "unknown";
}

const char *change_kind_name(enum change_kind kind) {
  static const char *const names[CHANGE_KIND_COUNT] = {"created", "modified", "deleted"};
  return names[kind];
}

const char *change_type_name(mode_t mode) {
  static const struct {
    mode_t type;
    const char *name;
  } types[] = {{S_IFREG, "file"},    {S_IFDIR, "folder"}, {S_IFLNK, "link"},  {S_IFIFO, "fifo"},
               {S_IFSOCK, "socket"}, {S_IFCHR, "device"}, {S_IFBLK, "device"}};
  for (size_t i = 0; i < ARRAY_SIZE(types); i++)
    if ((mode & S_IFMT) == types[i].type)
      return types[i].name;
  return "unknown";
}

/* From the plan to Landlock rules, and applying them. Packing may look and allocate; applying runs
 * between fork and exec and does neither. See landlock.h for the idea. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/landlock.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/landlock.h"
#include "core/cleanup.h"
#include "core/folder.h"
#include "core/path.h"
#include "core/text.h"
#include "engine/caps.h"
#include "engine/seccomp.h"

#define MAGIC          0x53424c4cu /* "SBLL" */
#define OWN_FILTER_MAX 1024

/* ---- the packed form ---- */

struct header {
  uint32_t magic, rule_count;
  int32_t abi;
  uint32_t network, debug, containers;
};

/* Followed by the path and its NUL, and by each excluded name and its NUL. */
struct packed_rule {
  uint64_t access;
  uint32_t length;   /* of everything that follows */
  uint32_t excluded; /* names; with `siblings` only */
  uint32_t siblings; /* not the folder itself, but all its entries but the excluded ones */
  uint32_t padding;
};

struct packer {
  struct text data;
  uint32_t count;
};

static void pack(struct packer *packer, const char *path, uint64_t access, bool siblings,
                 const struct strv *excluded) {
  struct packed_rule rule = {.access = access, .siblings = siblings};
  rule.length = (uint32_t)strlen(path) + 1;
  for (size_t i = 0; excluded && i < excluded->count; i++, rule.excluded++)
    rule.length += (uint32_t)strlen(excluded->items[i]) + 1;
  text_append_bytes(&packer->data, &rule, sizeof rule);
  text_append_bytes(&packer->data, path, strlen(path) + 1);
  for (size_t i = 0; excluded && i < excluded->count; i++)
    text_append_bytes(&packer->data, excluded->items[i], strlen(excluded->items[i]) + 1);
  packer->count++;
}

/* ---- from the plan ---- */

struct carving {
  const struct plan *plan;
  struct strv carved; /* not granted: hidden and private paths, outermost only */
  struct strv above;  /* folders above one of them */
};

static bool is_below_any(const struct strv *list, const char *path) {
  STRV_FOREACH (item, list) {
    if (path_is_under(path, *item))
      return true;
  }
  return false;
}

static bool is_in_writable(const struct plan *plan, const char *path) {
  for (size_t i = 0; i < plan->operation_count; i++) {
    if (plan->operations[i].kind == OPERATION_WRITABLE &&
        path_is_under(path, plan->operations[i].path))
      return true;
  }
  return false;
}

/* /proc is granted as a whole: its entries come and go, and without capabilities the kernel shows
 * little. In /sys/class are only links to /sys/devices, which is granted. What lies in a writable
 * place cannot be taken out of it; that is a missing feature. */
static bool is_carved(const struct plan *plan, const struct operation *operation) {
  if (operation->kind == OPERATION_PRIVATE || operation->kind == OPERATION_PRIVATE_SEALED)
    return true;
  return operation->kind == OPERATION_MASK && !path_is_under(operation->path, "/proc") &&
         !path_is_under(operation->path, "/sys/class") && !is_in_writable(plan, operation->path);
}

static void carve(struct carving *carving, const char *path) {
  if (is_below_any(&carving->carved, path))
    return;
  strv_add(&carving->carved, path);
  for (char *parent = path_parent(path), *next; parent; parent = next) {
    bool last = strcmp(parent, "/") == 0, known = strv_contains(&carving->above, parent);
    next = last || known ? NULL : path_parent(parent);
    if (known)
      free(parent);
    else
      strv_take(&carving->above, parent);
  }
}

static int by_depth(const void *left, const void *right) {
  size_t a = path_depth(*(char *const *)left), b = path_depth(*(char *const *)right);
  return a < b ? -1 : a > b;
}

static void collect_carved(struct carving *carving) {
  _cleanup_strv_ struct strv all = {0};
  for (size_t i = 0; i < carving->plan->operation_count; i++) {
    if (is_carved(carving->plan, &carving->plan->operations[i]))
      strv_add(&all, carving->plan->operations[i].path);
  }
  if (all.count > 0)
    qsort(all.items, all.count, sizeof *all.items, by_depth); /* outermost first */
  STRV_FOREACH (path, &all)
    carve(carving, *path);
}

/* The entries of `folder` that are carved out or lie above something that is. */
static void collect_excluded(const struct carving *carving, const char *folder,
                             struct strv *ret_names) {
  const struct strv *const lists[] = {&carving->carved, &carving->above};
  for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
    STRV_FOREACH (path, lists[i]) {
      const char *below = path_below(*path, folder);
      if (below && below[0] && !strchr(below, '/') && strcmp(*path, "/") != 0)
        strv_add(ret_names, below);
    }
  }
}

/* Listing goes down like every right: it may be granted above hidden files, whose names are no
 * secret, but not above hidden folders. */
static bool may_be_listed(const struct carving *carving, const char *folder) {
  STRV_FOREACH (path, &carving->carved) {
    struct stat status;
    if (path_is_under(*path, folder) && lstat(*path, &status) == 0 && S_ISDIR(status.st_mode))
      return false;
  }
  return true;
}

/* Without a /sys of its own: what only root may open there shows the kernel at work. */
static void carve_kernel_internals(struct carving *carving) {
  static const char *const folders[] = {"/sys/kernel/debug", "/sys/kernel/tracing"};
  for (size_t i = 0; geteuid() == 0 && i < ARRAY_SIZE(folders); i++)
    carve(carving, folders[i]);
}

static void pack_view(struct packer *packer, struct carving *carving) {
  collect_carved(carving);
  carve_kernel_internals(carving);
  STRV_FOREACH (folder, &carving->above) {
    _cleanup_strv_ struct strv excluded = {0};
    collect_excluded(carving, *folder, &excluded);
    pack(packer, *folder, landlock_grant_rights(GRANT_READ), true, &excluded);
    if (may_be_listed(carving, *folder))
      pack(packer, *folder, landlock_grant_rights(GRANT_LIST), false, NULL);
  }
}

static void pack_operation(struct packer *packer, const struct operation *operation) {
  switch (operation->kind) {
  case OPERATION_WRITABLE:
    pack(packer, operation->path, landlock_grant_rights(GRANT_WRITE), false, NULL);
    return;
  case OPERATION_READONLY: /* matters in private places and below hidden folders */
    pack(packer, operation->path, landlock_grant_rights(GRANT_READ), false, NULL);
    return;
  case OPERATION_DEVICE: /* but no /dev/pts: it would hold the user's other terminals */
    pack(packer, operation->path, landlock_grant_rights(GRANT_DEVICE), false, NULL);
    return;
  default:
    return;
  }
}

struct landlock_blob landlock_pack(const struct plan *plan, int abi, bool network,
                                   const char *temporary) {
  struct packer packer = {0};
  struct header header = {.magic = MAGIC,
                          .abi = abi,
                          .network = network,
                          .debug = plan->seccomp.debug,
                          .containers = plan->seccomp.containers};
  struct carving carving = {.plan = plan};
  text_append_bytes(&packer.data, &header, sizeof header);
  pack_view(&packer, &carving);
  for (size_t i = 0; i < plan->operation_count; i++)
    pack_operation(&packer, &plan->operations[i]);
  pack(&packer, temporary, landlock_grant_rights(GRANT_WRITE), false, NULL);
  header.rule_count = packer.count;
  memcpy(packer.data.data, &header, sizeof header);
  strv_clear(&carving.carved);
  strv_clear(&carving.above);
  return (struct landlock_blob){packer.data.data, packer.data.length};
}

/* ---- applying: raw system calls, no allocation ---- */

struct ruleset_attributes {
  uint64_t handled_fs, handled_network, scoped;
};

struct application {
  int ruleset;
  uint64_t handled;
};

#define RIGHT_TRUNCATE     (1ULL << 14)
#define RIGHT_IOCTL_DEVICE (1ULL << 15)
#define FILE_RIGHTS                                                                                \
  (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE |     \
   RIGHT_TRUNCATE | RIGHT_IOCTL_DEVICE)

static int grant(const struct application *application, int fd, uint64_t access, bool folder) {
  struct landlock_path_beneath_attr beneath = {.parent_fd = fd};
  beneath.allowed_access = access & application->handled & (folder ? ~0ULL : FILE_RIGHTS);
  if (!beneath.allowed_access || syscall(SYS_landlock_add_rule, application->ruleset,
                                         LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) == 0)
    return 0;
  return -errno;
}

/* The path is canonical: a link on the way means that somebody has changed it since. */
static int open_exactly(const char *path, unsigned long long flags) {
  struct open_how how = {.flags = flags | O_CLOEXEC,
                         .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
  int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
  if (fd < 0 && errno == ENOSYS)
    fd = open(path, (int)flags | O_CLOEXEC | O_NOFOLLOW);
  return fd < 0 ? -errno : fd;
}

struct siblings {
  const struct application *application;
  const struct packed_rule *rule;
  const char *excluded;
  int folder;
  int result;
};

static bool is_excluded(const struct siblings *siblings, const char *name) {
  const char *at = siblings->excluded;
  for (uint32_t i = 0; i < siblings->rule->excluded; i++, at += strlen(at) + 1) {
    if (strcmp(at, name) == 0)
      return true;
  }
  return false;
}

/* Links need no rule: what they lead to has its own. Sockets cannot be used anyway. */
static bool grant_sibling(void *context, const struct folder_entry *entry) {
  struct siblings *siblings = context;
  struct stat status;
  if (entry->type == DT_LNK || entry->type == DT_SOCK || is_excluded(siblings, entry->name))
    return true;
  _cleanup_close_ int fd = openat(siblings->folder, entry->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0)
    return true; /* gone, or out of reach */
  bool folder = entry->type == DT_DIR;
  if (entry->type == DT_UNKNOWN) {
    if (fstat(fd, &status) < 0 || S_ISLNK(status.st_mode))
      return true;
    folder = S_ISDIR(status.st_mode);
  }
  siblings->result = grant(siblings->application, fd, siblings->rule->access, folder);
  return siblings->result == 0;
}

static int apply_siblings(const struct application *application, const struct packed_rule *rule,
                          const char *path) {
  _cleanup_close_ int folder = open_exactly(path, O_RDONLY | O_DIRECTORY);
  if (folder < 0)
    return 0; /* what we cannot list, the workload could not either */
  struct siblings siblings = {.application = application,
                              .rule = rule,
                              .excluded = path + strlen(path) + 1,
                              .folder = folder};
  (void)folder_read(folder, grant_sibling, &siblings);
  return siblings.result;
}

static int apply_rule(const struct application *application, const struct packed_rule *rule,
                      const char *path) {
  if (rule->siblings)
    return apply_siblings(application, rule, path);
  _cleanup_close_ int fd = open_exactly(path, O_PATH);
  struct stat status;
  if (fd == -ENOENT || fd == -ENOTDIR || fd == -EACCES)
    return 0;
  if (fd < 0 || fstat(fd, &status) < 0)
    return fd < 0 ? fd : -errno;
  return grant(application, fd, rule->access, S_ISDIR(status.st_mode));
}

/* The command's own terminal may also be opened by its name. */
static int grant_terminals(const struct application *application) {
  int result = 0;
  for (int fd = 0; result == 0 && fd < 3; fd++) {
    if (isatty(fd))
      result = grant(application, fd, landlock_grant_rights(GRANT_DEVICE), false);
  }
  return result;
}

static int read_header(const struct landlock_blob *blob, struct header *ret) {
  if (blob->size < sizeof *ret)
    return -EINVAL;
  memcpy(ret, blob->data, sizeof *ret);
  return ret->magic != MAGIC || ret->abi < 1 ? -EINVAL : 0;
}

int landlock_new_ruleset(const struct landlock_blob *blob) {
  struct header header;
  int result = read_header(blob, &header);
  if (result < 0)
    return result;
  struct landlock_rights rights = landlock_rights_of(header.abi);
  struct ruleset_attributes attributes = {
      rights.handled_fs, header.network ? 0 : rights.handled_network, rights.scoped};
  int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0);
  return ruleset < 0 ? -errno : ruleset;
}

int landlock_fill(const struct landlock_blob *blob, int ruleset) {
  struct header header;
  int result = read_header(blob, &header);
  if (result < 0)
    return result;
  const char *at = blob->data + sizeof header, *end = blob->data + blob->size;
  struct application application = {ruleset, landlock_rights_of(header.abi).handled_fs};
  for (uint32_t i = 0; result == 0 && i < header.rule_count; i++) {
    struct packed_rule rule;
    if ((size_t)(end - at) < sizeof rule)
      return -EINVAL;
    memcpy(&rule, at, sizeof rule);
    at += sizeof rule;
    if ((size_t)(end - at) < rule.length || rule.length == 0 || at[rule.length - 1] != '\0')
      return -EINVAL;
    result = apply_rule(&application, &rule, at);
    at += rule.length;
  }
  return result;
}

/* What needs no capability itself. With no_new_privs an exec gives nothing back, not even to uid 0.
 */
static int clear_capabilities(void) {
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};
  if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
    return -errno;
  return syscall(SYS_capset, &header, none) < 0 ? -errno : 0;
}

/* Root keeps its uid here, so it must lose its powers; plain users and root in a container may have
 * none to lose, nor the one that the full way needs. */
static int drop_powers(void) {
  if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS &&
      errno != EPERM)
    return -errno;
  int result = caps_drop_all();
  if (result == -EPERM)
    result = clear_capabilities();
  if (result == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
    result = -errno;
  return result;
}

/* One program: each costs as much to install as thirty rules of Landlock. */
static int install_filter(const struct header *header) {
  struct seccomp_variant variant = {.debug = header->debug, .containers = header->containers};
  const struct sock_fprog *ours = seccomp_program(variant);
  struct sock_filter filter[LANDLOCK_FILTER_MAX + OWN_FILTER_MAX];
  size_t length = landlock_filter(header->network, header->abi < 3, filter);
  if (ours->len > OWN_FILTER_MAX)
    return -E2BIG;
  memcpy(filter + length, ours->filter, ours->len * sizeof *filter);
  return seccomp_install(
      &(struct sock_fprog){.filter = filter, .len = (unsigned short)(length + ours->len)});
}

int landlock_shut(const struct landlock_blob *blob, const char **ret_doing) {
  struct header header;
  *ret_doing = "reading the rules for Landlock";
  int result = read_header(blob, &header);
  if (result < 0)
    return result;
  *ret_doing = "giving up capabilities";
  result = drop_powers();
  if (result < 0)
    return result;
  *ret_doing = "installing the system call filter";
  return install_filter(&header);
}

int landlock_restrict_by(const struct landlock_blob *blob, int ruleset, const char **ret_doing) {
  struct header header;
  *ret_doing = "restricting it with Landlock";
  int result = read_header(blob, &header);
  if (result < 0)
    return result;
  struct landlock_rights rights = landlock_rights_of(header.abi);
  result = grant_terminals(&(struct application){ruleset, rights.handled_fs});
  if (result == 0 && syscall(SYS_landlock_restrict_self, ruleset, rights.restrict_flags) < 0)
    result = -errno;
  return result;
}

int landlock_confine(const struct landlock_blob *blob, const char **ret_doing) {
  *ret_doing = "making the rules for Landlock";
  int ruleset = landlock_new_ruleset(blob);
  if (ruleset < 0)
    return ruleset;
  _cleanup_close_ int owned = ruleset;
  int result = landlock_fill(blob, owned);
  if (result == 0)
    result = landlock_shut(blob, ret_doing);
  return result < 0 ? result : landlock_restrict_by(blob, owned, ret_doing);
}

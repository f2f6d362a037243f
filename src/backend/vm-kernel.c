/* The guest's kernel: which one, which modules it needs, in which order. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "backend/vm.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/path.h"

/* Buses, ports and the file system; each may be built in. */
static const char *const wanted_modules[] = {"virtio_pci", "virtio_console", "9p", "9pnet_virtio",
                                             NULL};
static const char *const network_modules[] = {"virtio_net", NULL};

enum { MODULE_LIMIT = 64 << 20, LIST_LIMIT = 16 << 20 };

void vm_kernel_clear(struct vm_kernel *kernel) {
  free(kernel->image);
  free(kernel->release);
  free(kernel->modules);
  *kernel = (struct vm_kernel){0};
}

/* ---- release (pure) ---- */

static char *first_word(const char *text, size_t size) {
  size_t length = 0;
  while (length < size && text[length] > ' ' && text[length] <= '~')
    length++;
  return length > 0 && length < size ? xstrndup(text, length) : NULL;
}

/* The header of a bzImage points to a text that starts with the release. */
static char *release_of_bzimage(const char *image, size_t size) {
  if (size < 0x250 || memcmp(image + 0x202, "HdrS", 4) != 0)
    return NULL;
  size_t at = (uint8_t)image[0x20e] + 256u * (uint8_t)image[0x20f] + 0x200;
  return at < size ? first_word(image + at, size - at) : NULL;
}

static char *release_of_elf(const char *image, size_t size) {
  static const char banner[] = "Linux version ";
  if (size < 64 || memcmp(image, "\177ELF", 4) != 0)
    return NULL;
  const char *end = image + size;
  for (const char *at = image; (at = memmem(at, (size_t)(end - at), banner, strlen(banner)));) {
    at += strlen(banner);
    /* The format string of the same sentence is in there as well. */
    if (at < end && *at >= '0' && *at <= '9')
      return first_word(at, (size_t)(end - at));
  }
  return NULL;
}

char *kernel_release(const void *image, size_t size) {
  char *release = release_of_bzimage(image, size);
  return release ? release : release_of_elf(image, size);
}

/* ---- modules (pure) ---- */

/* "kernel/fs/9p/9p.ko.xz" is the module "9p"; in names "-" and "_" are the same. */
static bool is_module(const char *file, size_t length, const char *name) {
  const char *base = file;
  for (const char *at = file; at < file + length; at++)
    base = *at == '/' ? at + 1 : base;
  size_t size = (size_t)(file + length - base), wanted = strlen(name);
  if (size < wanted + 3 || strncmp(base + wanted, ".ko", 3) != 0)
    return false;
  for (size_t i = 0; i < wanted; i++) {
    char letter = base[i] == '-' ? '_' : base[i];
    if (letter != (name[i] == '-' ? '_' : name[i]))
      return false;
  }
  return true;
}

/* The line of modules.dep or modules.builtin for a module, or NULL; its first word is the file. */
static const char *find_line(const char *list, const char *name) {
  for (const char *line = list; *line;) {
    size_t length = strcspn(line, "\n");
    if (is_module(line, strcspn(line, ":\n"), name))
      return line;
    line += length + (line[length] == '\n');
  }
  return NULL;
}

/* What a module needs is listed from the nearest to the farthest: all of it, farthest first. */
static void add_line(const char *line, struct strv *ret_files) {
  const char *colon = line + strcspn(line, ":\n"), *end = line + strcspn(line, "\n");
  const char *at = end;
  while (at > colon) {
    while (at > colon && (at[-1] == ' ' || at[-1] == ':'))
      at--;
    const char *last = at;
    while (at > colon && at[-1] != ' ' && at[-1] != ':')
      at--;
    _cleanup_free_ char *file = xstrndup(at, (size_t)(last - at));
    if (file[0] && !strv_contains(ret_files, file))
      strv_add(ret_files, file);
  }
  _cleanup_free_ char *own = xstrndup(line, (size_t)(colon - line));
  if (!strv_contains(ret_files, own))
    strv_add(ret_files, own);
}

int kernel_order_modules(const char *dependencies, const char *builtin, const char *const *wanted,
                         struct strv *ret_files, struct sb_error *error) {
  for (; *wanted; wanted++) {
    const char *line = find_line(dependencies, *wanted);
    if (line)
      add_line(line, ret_files);
    else if (!find_line(builtin, *wanted)) {
      sb_fail(error, SB_CODE_UNSUPPORTED, 0, "this kernel has no module '%s'", *wanted);
      return sb_hint(error, "name a kernel that has it with vm.kernel; Debian's plain "
                            "linux-image-amd64 does, the cloud flavour does not");
    }
  }
  return 0;
}

/* ---- finding ---- */

static int read_release(const char *path, char **ret_release) {
  _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat status;
  if (fd < 0 || fstat(fd, &status) < 0)
    return -errno;
  if (!S_ISREG(status.st_mode) || status.st_size == 0)
    return -EINVAL;
  void *image = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (image == MAP_FAILED)
    return -errno;
  *ret_release = kernel_release(image, (size_t)status.st_size);
  munmap(image, (size_t)status.st_size);
  return *ret_release ? 0 : -ENOEXEC;
}

static bool has_modules(const char *folder) {
  _cleanup_free_ char *list = path_join(folder, "modules.dep");
  return access(list, R_OK) == 0;
}

/* Beside the image for one that was unpacked somewhere, else where the system has them. */
static char *find_modules(const char *image, const char *release) {
  _cleanup_free_ char *beside = path_parent(image);
  const char *const roots[] = {beside, "/", "/usr"};
  for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
    char *folder =
        xasprintf("%s/lib/modules/%s", strcmp(roots[i], "/") == 0 ? "" : roots[i], release);
    if (has_modules(folder))
      return folder;
    free(folder);
  }
  return NULL;
}

static int use_configured(const char *path, struct vm_kernel *ret_kernel, struct sb_error *error) {
  struct vm_kernel kernel = {0};
  _cleanup_free_ char *shown = escape_string(path);
  int result = file_resolve(path, &kernel.image);
  if (result == 0)
    result = read_release(kernel.image, &kernel.release);
  if (result == 0 && (kernel.modules = find_modules(kernel.image, kernel.release))) {
    *ret_kernel = kernel;
    return 0;
  }
  if (result == -ENOEXEC || result == -EINVAL)
    sb_fail(error, SB_CODE_POLICY, 0, "vm.kernel '%s' is not a kernel image", shown);
  else if (result < 0)
    sb_fail(error, SB_CODE_NOT_FOUND, -result, "vm.kernel '%s'", shown);
  else
    sb_fail(error, SB_CODE_NOT_FOUND, 0, "there are no modules for the kernel %s of vm.kernel '%s'",
            kernel.release, shown);
  vm_kernel_clear(&kernel);
  return sb_hint(error, "name a vmlinuz or vmlinux whose modules are in /lib/modules, or in "
                        "lib/modules beside it");
}

static bool is_kernel_name(const char *name) {
  return strncmp(name, "vmlinuz-", 8) == 0 || strncmp(name, "vmlinux-", 8) == 0;
}

static bool is_usable(const char *path, struct vm_kernel *ret_kernel) {
  struct vm_kernel kernel = {0};
  if (file_resolve(path, &kernel.image) == 0 && read_release(kernel.image, &kernel.release) == 0 &&
      (kernel.modules = find_modules(kernel.image, kernel.release))) {
    *ret_kernel = kernel;
    return true;
  }
  vm_kernel_clear(&kernel);
  return false;
}

static void look_in_boot(struct vm_kernel *ret_kernel) {
  DIR *folder = opendir("/boot");
  for (struct dirent *entry; folder && (entry = readdir(folder));) {
    struct vm_kernel kernel = {0};
    _cleanup_free_ char *path = path_join("/boot", entry->d_name);
    if (!is_kernel_name(entry->d_name) || !is_usable(path, &kernel))
      continue;
    if (!ret_kernel->release || strverscmp(kernel.release, ret_kernel->release) > 0) {
      vm_kernel_clear(ret_kernel);
      *ret_kernel = kernel;
    } else {
      vm_kernel_clear(&kernel);
    }
  }
  if (folder)
    closedir(folder);
}

int vm_kernel_find(const struct policy *policy, struct vm_kernel *ret_kernel,
                   struct sb_error *error) {
  if (policy->vm.kernel)
    return use_configured(policy->vm.kernel, ret_kernel, error);
  look_in_boot(ret_kernel);
  if (ret_kernel->image)
    return 0;
  sb_fail(error, SB_CODE_NOT_FOUND, 0, "no readable kernel with its modules is in /boot");
  return sb_hint(error, "install linux-image-amd64, or name a kernel with vm.kernel");
}

/* ---- into the archive ---- */

/* A kernel without any loadable module has no lists; then everything must be built in. */
static char *read_list(const struct vm_kernel *kernel, const char *name) {
  _cleanup_free_ char *path = path_join(kernel->modules, name);
  char *text = NULL;
  size_t length;
  return file_read_at(AT_FDCWD, path, LIST_LIMIT, &text, &length) < 0 ? xstrdup("") : text;
}

static int add_module(const struct vm_kernel *kernel, const char *file, struct text *archive,
                      struct strv *ret_names, struct sb_error *error) {
  _cleanup_free_ char *path = path_join(kernel->modules, file), *data = NULL;
  size_t length;
  int result = file_read_at(AT_FDCWD, path, MODULE_LIMIT, &data, &length);
  if (result < 0) {
    _cleanup_free_ char *shown = escape_string(path);
    return sb_fail(error, SB_CODE_SYSTEM, -result, "reading the module '%s'", shown);
  }
  archive_add(archive, path_base(file), 0100644, data, length);
  strv_addf(ret_names, "/%s", path_base(file));
  return 0;
}

int vm_kernel_add_modules(const struct vm_kernel *kernel, bool network, struct text *archive,
                          struct strv *ret_names, struct sb_error *error) {
  _cleanup_free_ char *dependencies = read_list(kernel, "modules.dep");
  _cleanup_free_ char *builtin = read_list(kernel, "modules.builtin");
  _cleanup_strv_ struct strv files = {0};
  if (kernel_order_modules(dependencies, builtin, wanted_modules, &files, error) < 0 ||
      (network && kernel_order_modules(dependencies, builtin, network_modules, &files, error) < 0))
    return sb_wrap(error, "the kernel '%s'", kernel->release);
  STRV_FOREACH (file, &files) {
    if (add_module(kernel, *file, archive, ret_names, error) < 0)
      return -1;
  }
  return 0;
}

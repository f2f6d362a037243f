/* The guest's first file system: our program, modules, and the request that says what to do. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/vm.h"
#include "backend/vm/wire.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/path.h"

enum { PROGRAM_LIMIT = 16 << 20 };

static void add_record(struct text *request, enum vm_record letter, const char *value) {
  text_append_char(request, (char)letter);
  text_append_bytes(request, value, strlen(value) + 1);
}

static void add_number(struct text *request, enum vm_record letter, unsigned long long value) {
  char text[32];
  snprintf(text, sizeof text, "%llu", value);
  if (value)
    add_record(request, letter, text);
}

static void add_records(struct text *request, enum vm_record letter, const struct strv *values) {
  STRV_FOREACH (value, values)
    add_record(request, letter, *value);
}

/* The proxies are at the gateway, seen from the guest. */
static void add_environment(struct text *request, const struct plan *plan) {
  STRV_FOREACH (entry, &plan->environment) {
    _cleanup_free_ char *translated =
        plan->network.mode == NETWORK_NONE ? xstrdup(*entry) : vm_translate(*entry);
    add_record(request, VM_RECORD_VARIABLE, translated);
  }
}

static void add_network(struct text *request, const struct plan *plan) {
  const char *text = vm_resolver_text(plan);
  _cleanup_free_ char *place = NULL;
  if (vm_has_network(plan))
    add_record(request, VM_RECORD_NETWORK, "");
  if (!text || file_resolve("/etc/resolv.conf", &place) < 0)
    return;
  _cleanup_free_ char *translated = vm_translate(text);
  add_record(request, VM_RECORD_RESOLVER, place);
  add_record(request, VM_RECORD_NAMES, translated);
}

/* What may be written, and what is shown in a place that is private in the guest as well. The rest
 * is readable, and the session outside holds it. */
static void add_places(struct text *request, const struct plan *plan) {
  static const char *const private_places[] = {"/tmp", "/var/tmp", "/run", "/dev/shm"};
  for (size_t i = 0; i < plan->operation_count; i++) {
    const struct operation *operation = &plan->operations[i];
    bool wanted = operation->kind == OPERATION_WRITABLE || operation->kind == OPERATION_OVERLAY;
    for (size_t j = 0; j < ARRAY_SIZE(private_places); j++)
      wanted = wanted || (operation->kind == OPERATION_READONLY &&
                          path_is_under(operation->path, private_places[j]));
    struct stat status;
    if (!wanted || stat(operation->path, &status) < 0)
      continue;
    add_record(request, S_ISDIR(status.st_mode) ? VM_RECORD_FOLDER : VM_RECORD_FILE,
               operation->path);
  }
}

static void write_request(const struct backend_request *request, const struct strv *modules,
                          struct text *ret_request) {
  const struct plan *plan = request->plan;
  const uint64_t *limits = request->limits->value;
  char number[32];
  add_records(ret_request, VM_RECORD_MODULE, modules);
  add_places(ret_request, plan);
  add_records(ret_request, VM_RECORD_ARGUMENT, &plan->arguments);
  add_records(ret_request, VM_RECORD_EXECUTABLE, &plan->executables);
  add_environment(ret_request, plan);
  add_network(ret_request, plan);
  add_record(ret_request, VM_RECORD_CWD, plan->working_folder);
  add_record(ret_request, VM_RECORD_HOSTNAME, plan->hostname);
  snprintf(number, sizeof number, "%u", (unsigned)request->host->user);
  add_record(ret_request, VM_RECORD_USER, number);
  snprintf(number, sizeof number, "%u", (unsigned)request->host->group);
  add_record(ret_request, VM_RECORD_GROUP, number);
  add_number(ret_request, VM_RECORD_PROCESSES, limits[LIMIT_PROCESSES]);
  add_number(ret_request, VM_RECORD_OPEN_FILES, limits[LIMIT_OPEN_FILES]);
  add_number(ret_request, VM_RECORD_FILE_SIZE, limits[LIMIT_FILE_SIZE]);
  add_number(ret_request, VM_RECORD_TMPFS_SIZE, plan->private_size_bytes);
}

int vm_make_archive(const struct backend_request *request, const struct vm_kernel *kernel,
                    const char *program, struct text *ret_archive, struct sb_error *error) {
  _cleanup_strv_ struct strv modules = {0};
  _cleanup_text_ struct text records = {0};
  _cleanup_free_ char *init = NULL;
  size_t size;
  int result = file_read_at(AT_FDCWD, program, PROGRAM_LIMIT, &init, &size);
  if (result < 0) {
    _cleanup_free_ char *shown = escape_string(program);
    return sb_fail(error, SB_CODE_SYSTEM, -result, "reading '%s'", shown);
  }
  if (vm_kernel_add_modules(kernel, vm_has_network(request->plan), ret_archive, &modules, error) <
      0)
    return -1;
  write_request(request, &modules, &records);
  archive_add(ret_archive, "dev", 040755, "", 0);
  archive_add(ret_archive, "dev/console", 020600, "", 0);
  archive_add(ret_archive, "init", 0100755, init, size);
  archive_add(ret_archive, "request", 0100600, records.data, records.length);
  archive_finish(ret_archive);
  return 0;
}

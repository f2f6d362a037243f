/* The table of back ends, and looking things up in it. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/registry.h"
#include "backend/runner-limits.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/suggest.h"

const struct backend *const backends[] = {
    &native_backend,   /* this program */
    &landlock_backend, /* this program, without namespaces */
    &bwrap_backend,    /* other programs, with the host's files */
    &firejail_backend, /* the same, setuid */
    &nsjail_backend,   /* the same; not in Debian */
    &podman_backend,   /* containers: the files of an image */
    &docker_backend,   /* the same, by a daemon */
    &vm_backend,       /* a kernel of its own */
    &seatbelt_backend, /* macOS */
    NULL,
};

static size_t collect_names(const char *names[], size_t capacity) {
  size_t count = 0;
  for (const struct backend *const *at = backends; *at && count < capacity; at++)
    names[count++] = (*at)->name;
  return count;
}

const struct backend *backend_find(const char *name, struct sb_error *error) {
  for (const struct backend *const *at = backends; *at; at++) {
    if (strcmp((*at)->name, name) == 0)
      return *at;
  }
  const char *names[32];
  size_t count = collect_names(names, ARRAY_SIZE(names));
  const char *near = suggest_nearest(name, names, count);
  _cleanup_free_ char *shown = escape_string(name);
  sb_fail(error, SB_CODE_USAGE, 0, "there is no back end '%s'", shown);
  if (near)
    sb_hint(error, "did you mean '%s'? 'sandbox backends' lists them", near);
  else
    sb_hint(error, "'sandbox backends' lists them");
  return NULL;
}

void backend_status_clear(struct backend_status *status) {
  free(status->why);
  free(status->fix);
  *status = (struct backend_status){0};
}

static void set_status(struct backend_status *status, bool available, const char *fix, char *why) {
  uint64_t features = status->features;
  backend_status_clear(status);
  *status = (struct backend_status){
      .available = available, .features = features, .why = why, .fix = fix ? xstrdup(fix) : NULL};
}

void backend_available(struct backend_status *status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  set_status(status, true, NULL, xvasprintf(format, arguments));
  va_end(arguments);
}

void backend_missing(struct backend_status *status, const char *fix, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  set_status(status, false, fix, xvasprintf(format, arguments));
  va_end(arguments);
}

void backend_probe(const struct backend *backend, const struct host_context *host,
                   const struct policy *policy, uint64_t asked, bool quick,
                   struct backend_status *ret_status) {
  *ret_status = (struct backend_status){.quick = quick, .features = backend->features};
  if (backend->limits_by_group && (asked & RUNNER_GROUP_LIMITS))
    ret_status->features &= ~RUNNER_GROUP_LIMITS | runner_group_limits();
  /* Root owns the host's devices, and the descriptors that it passes on: fchmod reaches them. Only
   * the native engine puts its own in their place. */
  if (backend->limits_by_group && geteuid() == 0)
    ret_status->features &= ~FEATURE(METADATA);
  backend->probe(host, policy, ret_status);
}

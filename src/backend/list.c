/* The matrix of back ends: what each can enforce, and whether it works here. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "core/child.h"
#include "core/cleanup.h"
#include "core/json.h"
#include "core/text.h"

static json_t *features_to_json(uint64_t possible, uint64_t here) {
  json_t *object = json_object();
  for (int i = 0; i < FEATURE_COUNT; i++) {
    uint64_t bit = UINT64_C(1) << i;
    const char *value = !(possible & bit) ? "no" : here & bit ? "yes" : "not here";
    json_object_set_new(object, backend_feature_name(i), json_string(value));
  }
  return object;
}

static json_t *describe(const struct backend *backend, const struct host_context *host,
                        const struct policy *policy) {
  _cleanup_backend_status_ struct backend_status status = {0};
  backend_probe(backend, host, policy, ~UINT64_C(0), false, &status);
  json_t *object = json_object();
  json_set_string(object, "name", backend->name);
  json_set_string(object, "summary", backend->summary);
  json_object_set_new(object, "available", json_boolean(status.available));
  json_object_set_new(object, "chosenAutomatically", json_boolean(!backend->never_chosen));
  json_set_string(object, "why", status.why);
  json_set_string(object, "fix", status.fix);
  json_object_set_new(object, "features", features_to_json(backend->features, status.features));
  return object;
}

/* ---- all at once: most of the time is other programs' ---- */

struct asked {
  pid_t pid;
  int answer; /* the reading end of a pipe */
};

static struct asked ask(const struct backend *backend, const struct host_context *host,
                        const struct policy *policy) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0)
    return (struct asked){-1, -1};
  struct asked asked = {fork(), ends[0]};
  if (asked.pid == 0) {
    json_t *object = describe(backend, host, policy);
    _exit(json_dumpfd(object, ends[1], JSON_COMPACT) < 0);
  }
  close(ends[1]);
  return asked;
}

/* Where there was no process for it, or it died of its probe, we look ourselves: not even that is
 * a reason to leave a back end out. */
static json_t *hear(struct asked *asked, const struct backend *backend,
                    const struct host_context *host, const struct policy *policy) {
  json_t *object = asked->answer >= 0 ? json_loadfd(asked->answer, 0, NULL) : NULL;
  cleanup_close_fd(&asked->answer);
  (void)child_wait(asked->pid);
  return object ? object : describe(backend, host, policy);
}

json_t *backend_list_to_json(const struct host_context *host, const struct policy *policy) {
  enum { MOST = 32 };
  struct asked asked[MOST];
  json_t *list = json_array();
  for (size_t i = 0; i < MOST && backends[i]; i++)
    asked[i] = ask(backends[i], host, policy);
  for (size_t i = 0; i < MOST && backends[i]; i++)
    json_array_append_new(list, hear(&asked[i], backends[i], host, policy));
  return json_pack("{s:o}", "backends", list);
}

static void append_availability(struct text *text, const json_t *list) {
  size_t index;
  json_t *entry;
  json_array_foreach(list, index, entry) {
    const char *why = json_string_value(json_object_get(entry, "why"));
    const char *fix = json_string_value(json_object_get(entry, "fix"));
    text_appendf(text, "  %-9s  %-13s  %s\n", json_string_value(json_object_get(entry, "name")),
                 json_is_true(json_object_get(entry, "available")) ? "available" : "not available",
                 why ? why : json_string_value(json_object_get(entry, "summary")));
    if (fix)
      text_appendf(text, "  %-9s  %-13s  fix: %s\n", "", "", fix);
  }
}

static void append_row(struct text *text, const json_t *list, const char *feature) {
  size_t index;
  json_t *entry;
  text_appendf(text, "  %-21s", feature);
  json_array_foreach(list, index, entry) {
    const char *name = json_string_value(json_object_get(entry, "name"));
    const json_t *features = json_object_get(entry, "features");
    const char *value = json_string_value(json_object_get(features, feature));
    const char *shown = strcmp(value, "no") == 0 ? "-" : value;
    text_appendf(text, "  %-*s", strlen(name) > 8 ? (int)strlen(name) : 8, shown);
  }
  text_append_char(text, '\n');
}

char *backend_list_to_text(const struct host_context *host, const struct policy *policy) {
  struct text text = {0};
  size_t index;
  json_t *object = backend_list_to_json(host, policy), *entry;
  const json_t *list = json_object_get(object, "backends");
  text_append(&text, "back ends, in the order in which they are chosen\n");
  append_availability(&text, list);
  text_appendf(&text,
               "\nwhat each can enforce ('not here': it could, but not on this machine)\n  %-21s",
               "");
  json_array_foreach(list, index, entry) {
    const char *name = json_string_value(json_object_get(entry, "name"));
    text_appendf(&text, "  %-*s", strlen(name) > 8 ? (int)strlen(name) : 8, name);
  }
  text_append_char(&text, '\n');
  for (int i = 0; i < FEATURE_COUNT; i++)
    append_row(&text, list, backend_feature_name(i));
  json_decref(object);
  return text_steal(&text);
}

/* Commands that clients run in the session; see execs.h. */
#include "session/execs.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/json.h"
#include "core/strv.h"
#include "core/text.h"
#include "plan/plan.h"
#include "session/descriptors.h"

/* ---- the description that init gets ---- */

static int fail_request(struct sb_error *error, const char *what, const char *fix) {
  sb_fail(error, SB_CODE_USAGE, 0, "cmd.exec: %s", what);
  return sb_hint(error, "%s", fix);
}

static bool take_word(struct strv *list, const json_t *item, bool encoded) {
  if (!json_is_string(item))
    return false;
  size_t length = json_string_length(item);
  _cleanup_free_ char *word =
      encoded ? base64_decode(json_string_value(item), &length) : xstrdup(json_string_value(item));
  if (!word || strlen(word) != length)
    return false;
  strv_take(list, steal_pointer(word));
  return true;
}

/* The strings of NAME, or of NAME_b64 if that is there; none if neither is. */
static int take_words(struct strv *list, const json_t *body, const char *name,
                      struct sb_error *error) {
  _cleanup_free_ char *encoded_name = xasprintf("%s_b64", name);
  const json_t *plain = json_object_get(body, name);
  const json_t *encoded = json_object_get(body, encoded_name);
  const json_t *array = encoded ? encoded : plain;
  if (array && !json_is_array(array)) {
    sb_fail(error, SB_CODE_USAGE, 0, "cmd.exec: %s is not an array of strings", name);
    return -1;
  }
  size_t index;
  json_t *item;
  json_array_foreach(array, index, item) {
    if (!take_word(list, item, encoded != NULL)) {
      sb_fail(error, SB_CODE_USAGE, 0, "cmd.exec: %s[%zu] is not a string without NUL", name,
              index);
      return -1;
    }
  }
  return 0;
}

/* Where to start: as asked, or where the first command did. */
static int take_folder(char **ret_folder, const struct plan *plan, const json_t *body,
                       struct sb_error *error) {
  const json_t *plain = json_object_get(body, "cwd");
  _cleanup_free_ char *exact = json_get_path(body, "cwd");
  if (!exact && (json_object_get(body, "cwd_b64") || (plain && !json_is_string(plain))))
    return fail_request(error, "cwd is not a path", "send \"cwd\": \"/usr\"");
  *ret_folder = exact   ? steal_pointer(exact)
                : plain ? xstrdup(json_string_value(plain))
                        : xstrdup(plan->working_folder);
  return 0;
}

static void append_string(struct text *text, const char *string) {
  text_append_bytes(text, string, strlen(string) + 1);
}

/* The session's environment with the request's entries in place of those of the same name. */
static uint32_t append_environment(struct text *text, const struct plan *plan, const char *folder,
                                   const struct strv *entries) {
  _cleanup_strv_ struct strv merged = {0};
  STRV_FOREACH (entry, &plan->environment)
    strv_add(&merged, *entry);
  if (folder[0] == '/' && strcmp(folder, plan->working_folder) != 0)
    plan_set_variable(&merged, "PWD", folder);
  STRV_FOREACH (entry, entries) {
    const char *equals = strchr(*entry, '=');
    if (!equals)
      continue;
    _cleanup_free_ char *name = xstrndup(*entry, (size_t)(equals - *entry));
    plan_set_variable(&merged, name, equals + 1);
  }
  STRV_FOREACH (entry, &merged)
    append_string(text, *entry);
  return (uint32_t)merged.count;
}

static int describe(const struct plan *plan, const json_t *body, struct text *ret_text,
                    struct sb_error *error) {
  _cleanup_strv_ struct strv arguments = {0}, entries = {0};
  _cleanup_free_ char *folder = NULL;
  if (take_words(&arguments, body, "argv", error) < 0 ||
      take_words(&entries, body, "env", error) < 0 || take_folder(&folder, plan, body, error) < 0)
    return -1;
  if (arguments.count == 0)
    return fail_request(error, "argv is missing or empty", "send \"argv\": [\"ls\", \"-l\"]");
  struct exec_header header = {
      .argument_count = (uint32_t)arguments.count,
      .terminal = json_is_true(json_object_get(body, "tty")),
  };
  text_append_bytes(ret_text, &header, sizeof header);
  append_string(ret_text, folder);
  STRV_FOREACH (argument, &arguments)
    append_string(ret_text, *argument);
  header.environment_count = append_environment(ret_text, plan, folder, &entries);
  _cleanup_strv_ struct strv places = {0};
  plan_find_executables(&plan->environment, arguments.items[0], &places);
  STRV_FOREACH (place, &places)
    append_string(ret_text, *place);
  header.executable_count = (uint32_t)places.count;
  memcpy(ret_text->data, &header, sizeof header);
  return ret_text->length > EXEC_PAYLOAD_LIMIT
             ? fail_request(error, "arguments and environment are too long", "pass a file instead")
             : 0;
}

static int to_memory_file(const struct text *text, struct sb_error *error) {
  _cleanup_close_ int fd = memfd_create("sandbox-exec", MFD_CLOEXEC);
  if (fd < 0 || file_write_all(fd, text->data, text->length) < 0)
    return sb_fail_errno(error, "describing the command");
  return steal_fd(&fd);
}

/* ---- requests ---- */

/* A file for reading could be opened again for writing where nothing holds it: see
 * plan_request.outside_files. */
static int check_descriptors(const struct plan *plan, const int fds[3], struct sb_error *error) {
  bool held = plan_holds_outside_files(plan);
  for (int i = 0; i < 3; i++) {
    if (fds[i] < 0)
      return fail_request(error, "no descriptors for stdin, stdout and stderr came with it",
                          "pass three descriptors, or ask for \"tty\": true");
    if (descriptor_check(fds[i], i, plan->unix_datagrams, error) < 0 ||
        descriptor_check_file(fds[i], i, plan, error) < 0)
      return -1;
    if (!held && fd_is_readable_file(fds[i])) {
      sb_fail(error, SB_CODE_USAGE, 0, "descriptor %d is a file that the session could write to",
              i);
      return sb_hint(error, "pass it through a pipe, or start the session with 'sandbox run "
                            "--detach'");
    }
  }
  return 0;
}

static struct exec_entry *find(struct execs *execs, uint32_t id) {
  for (size_t i = 0; i < execs->count; i++) {
    if (execs->items[i].id == id)
      return &execs->items[i];
  }
  return NULL;
}

static void forget(struct execs *execs, struct exec_entry *entry) {
  json_decref(entry->tag);
  *entry = execs->items[--execs->count];
}

int execs_request(struct execs *execs, struct engine *engine, const struct request *request,
                  struct sb_error *error) {
  _cleanup_text_ struct text text = {0};
  if (describe(engine->plan, request->body, &text, error) < 0)
    return -1;
  bool terminal = json_is_true(json_object_get(request->body, "tty"));
  if (!terminal && check_descriptors(engine->plan, request->fds, error) < 0)
    return -1;
  _cleanup_close_ int memory = to_memory_file(&text, error);
  if (memory < 0)
    return -1;
  int fds[FD_PASS_LIMIT] = {memory, request->fds[0], request->fds[1], request->fds[2]};
  struct message message = {.kind = MESSAGE_EXEC, .id = ++execs->next_id};
  int result = fd_send(engine->channel, fds, terminal ? 1 : 4, &message, sizeof message);
  if (result == -EAGAIN) {
    sb_fail(error, SB_CODE_SYSTEM, 0, "the session is starting too many commands at once");
    return sb_hint(error, "wait for event.started before sending more");
  }
  if (result < 0)
    return sb_fail(error, SB_CODE_SYSTEM, -result, "asking the session to start a command");
  ARRAY_GROW(execs->items, execs->count);
  execs->items[execs->count++] = (struct exec_entry){
      .id = message.id,
      .client = request->client,
      .tag = json_incref(json_object_get(request->body, "tag")),
      .asked_ns = monotonic_ns(),
  };
  return 0;
}

int execs_signal(struct execs *execs, struct engine *engine, const struct request *request,
                 struct sb_error *error) {
  struct exec_entry *entry =
      find(execs, (uint32_t)json_integer_value(json_object_get(request->body, "id")));
  int signal = (int)json_integer_value(json_object_get(request->body, "signal"));
  if (!entry || entry->client != request->client)
    return fail_request(error, "no such command of this connection", "use the id of event.started");
  if (signal < 1 || signal > 64)
    return fail_request(error, "not a signal", "send a number from 1 to 64");
  struct message message = {.kind = MESSAGE_EXEC_SIGNAL, .value = signal, .id = entry->id};
  fd_send(engine->channel, NULL, 0, &message, sizeof message);
  return 0;
}

/* ---- what init says ---- */

static void on_started(struct execs *execs, struct exec_entry *entry, int value) {
  if (value < 0) {
    control_send(entry->client,
                 json_pack("{s:s, s:i, s:i}", "event", "event.failed", "id", (int)entry->id,
                           "errno", -value),
                 entry->tag, NULL, 0);
    forget(execs, entry);
    return;
  }
  entry->started = true;
  execs->total++;
  control_send(
      entry->client,
      json_pack("{s:s, s:i, s:i}", "event", "event.started", "id", (int)entry->id, "pid", value),
      entry->tag, NULL, 0);
}

/* Ends the command of a client that left. If the line is full now, it has room again when init has
 * said something: then once more. */
static void end_command(struct engine *engine, struct exec_entry *entry) {
  struct message message = {.kind = MESSAGE_EXEC_SIGNAL, .value = SIGKILL, .id = entry->id};
  entry->told_to_end = fd_send(engine->channel, NULL, 0, &message, sizeof message) != -EAGAIN;
}

static void end_abandoned(struct execs *execs, struct engine *engine) {
  for (size_t i = 0; i < execs->count; i++) {
    if (!execs->items[i].client && !execs->items[i].told_to_end)
      end_command(engine, &execs->items[i]);
  }
}

/* Nobody wants to know any more; only its end matters. */
static void on_abandoned_message(struct execs *execs, struct exec_entry *entry,
                                 const struct message *message) {
  bool failed = message->kind == MESSAGE_EXEC_STARTED && message->value < 0;
  if (failed || message->kind == MESSAGE_EXEC_EXITED)
    forget(execs, entry);
}

void execs_message(struct execs *execs, struct engine *engine, const struct message *message,
                   const int *fds) {
  end_abandoned(execs, engine);
  struct exec_entry *entry = find(execs, message->id);
  if (!entry)
    return;
  if (!entry->client)
    on_abandoned_message(execs, entry, message);
  else if (message->kind == MESSAGE_EXEC_TERMINAL)
    control_send(entry->client,
                 json_pack("{s:s, s:i}", "event", "event.terminal", "id", (int)entry->id),
                 entry->tag, fds, 1);
  else if (message->kind == MESSAGE_EXEC_STARTED)
    on_started(execs, entry, message->value);
  else if (message->kind == MESSAGE_EXEC_EXITED) {
    log_write(execs->log, LOG_INFO, "exec", (double)(monotonic_ns() - entry->asked_ns) / 1e3,
              json_pack("{s:i, s:i}", "id", (int)entry->id, "status", message->value));
    control_send(entry->client,
                 json_pack("{s:s, s:i, s:i}", "event", "event.exited", "id", (int)entry->id,
                           "status", message->value),
                 entry->tag, NULL, 0);
    forget(execs, entry);
  }
}

static bool has_earlier(const struct execs *execs, size_t index) {
  for (size_t i = 0; i < index; i++) {
    if (execs->items[i].client == execs->items[index].client)
      return true;
  }
  return false;
}

void execs_warn(const struct execs *execs, const char *text) {
  for (size_t i = 0; i < execs->count; i++) {
    struct client *client = execs->items[i].client;
    if (client && !has_earlier(execs, i))
      control_send(client, json_pack("{s:s, s:s}", "event", "event.warning", "text", text), NULL,
                   NULL, 0);
  }
}

void execs_client_gone(struct execs *execs, struct engine *engine, const struct client *client) {
  for (size_t i = execs->count; i-- > 0;) {
    if (execs->items[i].client != client)
      continue;
    execs->items[i].client = NULL;
    if (engine->channel >= 0)
      end_command(engine, &execs->items[i]);
  }
}

void execs_clear(struct execs *execs) {
  while (execs->count > 0)
    forget(execs, &execs->items[0]);
  free(execs->items);
  *execs = (struct execs){0};
}

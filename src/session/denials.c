/* What was denied in a session; see denials.h. */
#include "session/denials.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/json.h"
#include "core/path.h"
#include "gate/automount.h"
#include "policy/generalise.h"
#include "policy/policy.h"
#include "session/ancestors.h"
#include "session/questions.h"

static const struct {
  const char *name, *text;
} reasons[] = {
    [DENIAL_HIDDEN] = {"hidden", "the policy hides it"},
    [DENIAL_POLICY] = {"policy", "the policy denies it"},
    [DENIAL_ANSWERED] = {"answered", "it was denied"},
    [DENIAL_REST] = {"rest", "everything else was denied for this session"},
    [DENIAL_TIMEOUT] = {"timeout", "nobody answered in time"},
    [DENIAL_CLOSED] = {"closed", "whoever was asked has left"},
    [DENIAL_NOBODY] = {"not-interactive", "it is not allowed yet, and nobody is there to be asked"},
    [DENIAL_FLOOD] = {"flood", "too many questions at once"},
    [DENIAL_READ_ONLY] = {"read-only", "it is not writable"},
    [DENIAL_AUDIT] = {"audit", "the decision could not be written to the audit log"},
    [DENIAL_UNASKABLE] = {"not-askable", "such a call cannot wait for an answer"},
    [DENIAL_FAILED] = {"failed", "it was allowed, but could not be brought into the session"},
};

const char *denial_reason_name(enum denial_reason reason) {
  return reasons[reason].name;
}

static bool same_text(const char *first, const char *second) {
  return first == second || (first && second && strcmp(first, second) == 0);
}

static struct denial *find(struct denials *denials, const struct access_request *request,
                           enum denial_reason reason) {
  for (size_t i = 0; i < denials->count; i++) {
    struct denial *item = &denials->items[i];
    if (item->subject == request->subject && item->reason == reason &&
        access_class_of(item->want) == access_class_of(request->want) &&
        item->port == request->port && same_text(item->path, request->path) &&
        same_text(item->host, request->host))
      return item;
  }
  return NULL;
}

bool denials_add(struct denials *denials, const struct access_request *request,
                 enum denial_reason reason, const char *exe) {
  struct denial *known = find(denials, request, reason);
  if (known) {
    known->count++;
    return false;
  }
  if (denials->count == DENIALS_LIMIT) {
    denials->left_out++;
    return false;
  }
  ARRAY_GROW(denials->items, denials->count);
  denials->items[denials->count++] = (struct denial){
      .subject = request->subject,
      .want = request->want,
      .reason = reason,
      .path = request->path ? xstrdup(request->path) : NULL,
      .host = request->host ? xstrdup(request->host) : NULL,
      .port = request->port,
      .exe = xstrdup(exe ? exe : "?"),
      .count = 1,
  };
  return true;
}

void denials_clear(struct denials *denials) {
  for (size_t i = 0; i < denials->count; i++) {
    free(denials->items[i].path);
    free(denials->items[i].host);
    free(denials->items[i].exe);
  }
  free(denials->items);
  *denials = (struct denials){0};
}

/* ---- how to allow it ---- */

static bool is_missing(const char *path) {
  _cleanup_free_ char *folder = path_parent(path);
  _cleanup_close_ int fd = open(folder, O_PATH | O_CLOEXEC);
  struct stat status;
  return fd < 0 || automount_waits(fd, path) || lstat(path, &status) < 0;
}

static bool is_to_be_made(const struct access_request *request) {
  return request->subject == SUBJECT_FILE && request->want == WANT_WRITE &&
         is_missing(request->path);
}

static bool is_too_much(const struct policy_context *context, const char *folder) {
  return policy_is_too_broad(context, folder) || ancestor_holds_guarded(context, folder);
}

/* A name that is to be made cannot be allowed before it is there: its folder can. But nobody should
 * be told to open a whole home folder, ~/.config or ~/.cargo, with what is started at every login
 * or found on the PATH, for one name in it. */
static char *allowable(const struct policy_context *context, const struct access_request *request) {
  struct stat status;
  _cleanup_free_ char *folder = path_parent(request->path);
  bool by_folder =
      is_to_be_made(request) && stat(folder, &status) == 0 && !is_too_much(context, folder);
  return by_folder ? steal_pointer(folder) : xstrdup(request->path);
}

static void file_remedy(const struct policy_context *context, const struct access_request *request,
                        char **ret_flag, char **ret_line) {
  _cleanup_free_ char *path = allowable(context, request), *word = escape_shell_word(path);
  _cleanup_free_ char *quoted = policy_quote_path(path);
  bool write = request->want == WANT_WRITE, speak = request->want == WANT_CONNECT;
  /* Nobody should be told to open a home folder to who only looks for names in it. */
  bool names = request->want == WANT_LIST && ancestor_is_too_large(context, path);
  const char *list = speak   ? "network: {unix_sockets"
                     : write ? "filesystem: {write"
                     : names ? "filesystem: {list"
                             : "filesystem: {read";
  *ret_flag = speak || names ? NULL : xasprintf("%s %s", write ? "--rw" : "--ro", word);
  *ret_line = xasprintf("%s: [%s]}", list, quoted);
}

static bool is_write_to_too_much(const struct policy_context *context,
                                 const struct access_request *request) {
  return request->subject == SUBJECT_FILE && request->want == WANT_WRITE &&
         policy_is_too_broad(context, request->path);
}

/* "--ro /opt/sdk" and "filesystem: {read: ['/opt/sdk']}": what would allow it. New strings. The
 * first is untouched where no flag does; both where nobody should allow so much. */
static void find_remedy(const struct policy_context *context, const struct access_request *request,
                        char **ret_flag, char **ret_line) {
  if (is_write_to_too_much(context, request))
    return;
  if (request->subject == SUBJECT_FILE) {
    file_remedy(context, request, ret_flag, ret_line);
    return;
  }
  _cleanup_free_ char *shown = request_show(request), *word = escape_shell_word(shown);
  *ret_flag = xasprintf("--allow-network=%s", word);
  *ret_line = xasprintf("network: {mode: filtered, allow: ['%s']}", shown);
}

/* True if the advice names what is not there yet. */
static bool is_to_be_made_first(const struct policy_context *context,
                                const struct access_request *request) {
  _cleanup_free_ char *path = is_to_be_made(request) ? allowable(context, request) : NULL;
  return path && strcmp(path, request->path) == 0;
}

char *denial_sentence(const struct policy_context *context, const struct access_request *request,
                      enum denial_reason reason, const char *exe) {
  _cleanup_free_ char *shown = request_show(request), *program = escape_name(exe ? exe : "?");
  _cleanup_free_ char *flag = NULL, *line = NULL;
  find_remedy(context, request, &flag, &line);
  bool missing = is_to_be_made_first(context, request);
  const char *allow = missing ? "to allow it, create it, then" : "to allow it";
  struct text text = {0};
  text_appendf(&text, "denied: %s may not %s %s: %s", program, want_verb(request->want), shown,
               reasons[reason].text);
  if (flag)
    text_appendf(&text, "; %s: sandbox run %s, or in a policy file: %s", allow, flag, line);
  else if (line)
    text_appendf(&text, "; %s: in a policy file: %s", allow, line);
  else if (missing)
    text_append(&text, "; create it, then the next try says what would allow more");
  return text_steal(&text);
}

json_t *denials_to_json(const struct policy_context *context, const struct denials *denials) {
  json_t *array = json_array();
  for (size_t i = 0; i < denials->count; i++) {
    const struct denial *item = &denials->items[i];
    struct access_request request = {.subject = item->subject,
                                     .want = item->want,
                                     .path = item->path,
                                     .host = item->host,
                                     .port = item->port};
    _cleanup_free_ char *flag = NULL, *line = NULL;
    json_t *object = json_object();
    json_set_string(object, "subject", item->subject == SUBJECT_FILE ? "file" : "network");
    json_set_string(object, "access", want_name(item->want));
    if (item->path)
      json_set_path(object, "path", item->path);
    if (item->host) {
      json_set_string(object, "host", item->host);
      json_object_set_new(object, "port", json_integer(item->port));
    }
    json_set_string(object, "reason", denial_reason_name(item->reason));
    json_object_set_new(object, "count", json_integer((json_int_t)item->count));
    json_set_path(object, "exe", item->exe);
    if (item->reason != DENIAL_HIDDEN)
      find_remedy(context, &request, &flag, &line);
    json_set_string(object, "flag", flag);
    json_set_string(object, "policy", line);
    json_array_append_new(array, object);
  }
  return array;
}

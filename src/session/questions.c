/* What is asked; see questions.h. */
#include "session/questions.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/json.h"
#include "session/ancestors.h"

static const struct {
  const char *verb, *name;
} wants[] = {
    [WANT_READ] = {"read", "read"},       [WANT_LIST] = {"list", "list"},
    [WANT_STAT] = {"look at", "stat"},    [WANT_EXECUTE] = {"run", "execute"},
    [WANT_WRITE] = {"write to", "write"}, [WANT_CONNECT] = {"connect to", "connect"},
};

const char *want_verb(enum want want) {
  return wants[want].verb;
}

const char *want_name(enum want want) {
  return wants[want].name;
}

const char *scope_name(enum grant_scope scope) {
  static const char *const names[] = {
      [SCOPE_ONCE] = "once", [SCOPE_SESSION] = "session", [SCOPE_PROJECT] = "project",
      [SCOPE_USER] = "user", [SCOPE_ORG] = "org",
  };
  return names[scope];
}

static ssize_t read_link_at(int processes, const char *process, const char *name,
                            char ret_target[PATH_MAX]) {
  char link[NAME_MAX + 8];
  snprintf(link, sizeof link, "%s/%s", process, name);
  return readlinkat(processes, link, ret_target, PATH_MAX);
}

/* A process whose first thread has ended has a program and a folder only by way of the others. */
static ssize_t read_link_of_thread(pid_t pid, const char *name, char ret_target[PATH_MAX]) {
  char threads[64];
  snprintf(threads, sizeof threads, "/proc/%d/task", (int)pid);
  DIR *folder = opendir(threads);
  ssize_t length = -1;
  for (const struct dirent *thread; folder && length < 0 && (thread = readdir(folder));) {
    if (thread->d_name[0] != '.')
      length = read_link_at(dirfd(folder), thread->d_name, name, ret_target);
  }
  if (folder)
    closedir(folder);
  return length;
}

static char *read_link_of(pid_t pid, const char *name) {
  char process[32], target[PATH_MAX];
  snprintf(process, sizeof process, "/proc/%d", (int)pid);
  ssize_t length = pid > 0 ? read_link_at(AT_FDCWD, process, name, target) : -1;
  if (length < 0 && pid > 0 && errno == ENOENT)
    length = read_link_of_thread(pid, name, target);
  return length > 0 ? xstrndup(target, (size_t)length) : xstrdup("?");
}

void process_describe(pid_t pid, char **ret_exe, char **ret_cwd) {
  *ret_exe = read_link_of(pid, "exe");
  *ret_cwd = read_link_of(pid, "cwd");
}

/* Nobody who has not been told an id can name it, and none is ever used again. */
static void draw_id(char ret_id[QUESTION_ID_SIZE]) {
  unsigned char random[(QUESTION_ID_SIZE - 1) / 2];
  while (getrandom(random, sizeof random, 0) != sizeof random)
    ;
  for (size_t i = 0; i < sizeof random; i++)
    snprintf(ret_id + 2 * i, 3, "%02x", random[i]);
}

struct question *question_new(const struct access_request *request, const struct policy *policy,
                              const struct policy_context *context) {
  struct question *question = xcalloc(1, sizeof *question);
  draw_id(question->id);
  question->request = *request;
  question->request.path = request->path ? xstrdup(request->path) : NULL;
  question->request.host = request->host ? xstrdup(request->host) : NULL;
  process_describe(request->pid, &question->exe, &question->cwd);
  question->widest = SCOPE_ORG;
  if (request->subject == SUBJECT_FILE) {
    if (request->lasting || request->want == WANT_WRITE)
      question->narrowest = SCOPE_SESSION;
    if (request->want != WANT_WRITE)
      question->proposal = ancestor_propose(policy, context, request->path);
    bool too_large = ancestor_is_too_large(context, request->path);
    question->names = too_large && request->names;
    if (too_large && !question->names)
      question->widest = question->narrowest = SCOPE_ONCE;
  }
  return question;
}

void question_free(struct question *question) {
  free((char *)question->request.path);
  free((char *)question->request.host);
  free(question->exe);
  free(question->cwd);
  free(question->proposal);
  free(question->own_secret);
  free(question->waiters);
  free(question);
}

static bool same_text(const char *first, const char *second) {
  return first && second && strcmp(first, second) == 0;
}

/* By the object and its name: a hard link is another name, and the name is what is shown. Whoever
 * allows names allows nothing else that somebody wants of the folder. */
bool question_is_about(const struct question *question, const struct access_request *request) {
  const struct access_request *own = &question->request;
  if (own->subject != request->subject ||
      access_class_of(own->want) != access_class_of(request->want) ||
      (question->names && !request->names))
    return false;
  if (own->subject == SUBJECT_NETWORK)
    return own->port == request->port && same_text(own->host, request->host);
  return own->device == request->device && own->inode == request->inode &&
         same_text(own->path, request->path);
}

void question_add_waiter(struct question *question, uint64_t ticket, answer_callback *callback,
                         void *context) {
  ARRAY_GROW(question->waiters, question->waiter_count);
  question->waiters[question->waiter_count++] =
      (struct waiter){.ticket = ticket, .callback = callback, .context = context};
}

bool question_drop_waiter(struct question *question, uint64_t ticket) {
  for (size_t i = 0; i < question->waiter_count; i++) {
    if (question->waiters[i].ticket != ticket)
      continue;
    question->waiters[i] = question->waiters[--question->waiter_count];
    return true;
  }
  return false;
}

/* ---- showing ---- */

char *request_show(const struct access_request *request) {
  if (request->subject == SUBJECT_FILE)
    return escape_name(request->path);
  _cleanup_free_ char *host = escape_string(request->host);
  if (request->port == 0)
    return steal_pointer(host); /* a name that was looked up */
  return xasprintf(strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, request->port);
}

void request_to_json(const struct access_request *request, json_t *object) {
  json_set_string(object, "access", want_name(request->want));
  if (request->subject == SUBJECT_NETWORK) {
    json_set_string(object, "host", request->host);
    json_object_set_new(object, "port", json_integer(request->port));
    return;
  }
  json_set_path(object, "path", request->path);
  json_object_set_new(object, "device", json_integer((json_int_t)request->device));
  json_object_set_new(object, "inode", json_integer((json_int_t)request->inode));
  json_object_set_new(object, "folder", json_boolean(request->folder));
}

json_t *question_to_json(const struct question *question, uint64_t now_ns) {
  const struct access_request *request = &question->request;
  bool file = request->subject == SUBJECT_FILE;
  json_t *object = json_pack("{s:s, s:s, s:i, s:s, s:i}", "event",
                             file ? "event.fs_request" : "event.net_request", "id", question->id,
                             "pid", (int)request->pid, "op", want_name(request->want), "waiting",
                             (int)question->waiter_count);
  json_set_path(object, "exe", question->exe);
  json_set_path(object, "cwd", question->cwd);
  request_to_json(request, object);
  if (question->proposal)
    json_set_path(object, "proposal", question->proposal);
  json_set_string(object, "secret", question->secret);
  if (file)
    json_object_set_new(object, "names", json_boolean(question->names));
  json_set_string(object, "narrowest", scope_name(question->narrowest));
  json_set_string(object, "widest", scope_name(question->widest));
  uint64_t left = question->deadline_ns > now_ns ? question->deadline_ns - now_ns : 0;
  json_object_set_new(object, "seconds_left", json_real((double)left / 1e9));
  return object;
}

/* ---- reading ---- */

static const char *text_of(const json_t *object, const char *key) {
  return json_string_value(json_object_get(object, key));
}

static char *path_or_unknown(const json_t *object, const char *key) {
  char *path = json_get_path(object, key);
  return path ? path : xstrdup("?");
}

static bool read_request(const json_t *message, struct access_request *request) {
  const char *op = text_of(message, "op"), *host = text_of(message, "host");
  size_t want = 0;
  while (op && want < ARRAY_SIZE(wants) && strcmp(op, wants[want].name) != 0)
    want++;
  if (!op || want == ARRAY_SIZE(wants))
    return false;
  request->want = (enum want)want;
  request->pid = (pid_t)json_integer_value(json_object_get(message, "pid"));
  if (request->subject == SUBJECT_NETWORK) {
    request->host = host ? xstrdup(host) : NULL;
    request->port = (uint16_t)json_integer_value(json_object_get(message, "port"));
    return host;
  }
  request->path = json_get_path(message, "path");
  request->folder = json_is_true(json_object_get(message, "folder"));
  return request->path;
}

static enum grant_scope read_scope(const char *name) {
  int scope = SCOPE_ORG;
  while (scope > SCOPE_ONCE && (!name || strcmp(name, scope_name((enum grant_scope)scope)) != 0))
    scope--;
  return (enum grant_scope)scope;
}

struct question *question_from_json(const json_t *message) {
  const char *event = text_of(message, "event"), *id = text_of(message, "id");
  bool file = event && strcmp(event, "event.fs_request") == 0;
  bool network = event && strcmp(event, "event.net_request") == 0;
  if ((!file && !network) || !id || strlen(id) != QUESTION_ID_SIZE - 1)
    return NULL;
  struct question *question = xcalloc(1, sizeof *question);
  memcpy(question->id, id, QUESTION_ID_SIZE);
  question->request.subject = file ? SUBJECT_FILE : SUBJECT_NETWORK;
  if (!read_request(message, &question->request)) {
    question_free(question);
    return NULL;
  }
  question->exe = path_or_unknown(message, "exe");
  question->cwd = path_or_unknown(message, "cwd");
  question->proposal = json_get_path(message, "proposal");
  question->names = json_is_true(json_object_get(message, "names"));
  question->narrowest = read_scope(text_of(message, "narrowest"));
  question->widest = read_scope(text_of(message, "widest"));
  const char *secret = text_of(message, "secret");
  question->secret = question->own_secret = secret ? escape_string(secret) : NULL;
  question->waiter_count = (size_t)json_integer_value(json_object_get(message, "waiting"));
  return question;
}

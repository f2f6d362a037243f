/* Sessions that stay: started by the command, talked to over their control socket. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api/api.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/json.h"
#include "session/client.h"
#include "session/registry.h"

enum { STREAM_COUNT = 2 };

struct sb_session {
  char *id, *folder;
  int lifeline; /* -1: not ours to end */
};

/* ---- starting ---- */

static sb_session *session_new(const char *id, const char *folder, int lifeline) {
  sb_session *session = xcalloc(1, sizeof *session);
  *session = (sb_session){.id = xstrdup(id), .folder = xstrdup(folder), .lifeline = lifeline};
  return session;
}

/* Where the sessions of this user are. */
static int find_session(const char *id, char **ret_id, char **ret_folder, struct sb_error *error) {
  _cleanup_host_ struct host_context host = {0};
  _cleanup_registry_ struct registry registry = {0};
  const struct registry_entry *entry;
  if (host_context_load_at("/", &host, error) < 0 || registry_load(&host, &registry, error) < 0 ||
      registry_find(&registry, id, &entry, error) < 0)
    return -1;
  *ret_id = xstrdup(entry->id);
  *ret_folder = xstrdup(entry->folder);
  return 0;
}

sb_session *sb_session_open(const char *id, sb_error *error) {
  API_ERROR(error);
  _cleanup_free_ char *found = NULL, *folder = NULL;
  return find_session(id, &found, &folder, error_) < 0 ? NULL : session_new(found, folder, -1);
}

sb_session *sb_session_start(const sb_options *options, sb_error *error) {
  API_ERROR(error);
  _cleanup_answer_ struct helper_answer answer = {0};
  _cleanup_strv_ struct strv words = {0};
  _cleanup_close_ int lifeline = -1;
  _cleanup_free_ char *id = NULL, *folder = NULL;
  strv_add(&words, "--detach");
  strv_add(&words, "--json");
  struct helper_call call = {.options = options,
                             .verb = "run",
                             .words = &words,
                             .wants_lifeline = true,
                             .ret_lifeline = &lifeline};
  if (helper_run(&call, &answer, error_) < 0)
    return NULL;
  json_t *object = helper_json(&answer, error_);
  const char *sid = json_string_value(json_object_get(object, "sid"));
  int result = sid ? find_session(sid, &id, &folder, error_) : -1;
  json_decref(object);
  return result < 0 ? NULL : session_new(id, folder, steal_fd(&lifeline));
}

void sb_session_free(sb_session *session) {
  if (!session)
    return;
  if (session->lifeline >= 0) {
    sb_session_kill(session, 1, NULL);
    close(session->lifeline);
  }
  free(session->id);
  free(session->folder);
  free(session);
}

const char *sb_session_id(const sb_session *session) {
  return session->id;
}

/* ---- one command in it ---- */

struct execution {
  struct client_connection connection;
  struct sb_result *result;
  int readers[STREAM_COUNT];
  bool over;
};

static void close_fd(int *fd) {
  if (*fd >= 0)
    close(*fd);
  *fd = -1;
}

static json_t *exec_request(const char *const argv[], const sb_options *options) {
  json_t *request = json_pack("{s:s, s:b}", "cmd", "cmd.exec", "tty", 0);
  size_t count = 0;
  while (argv[count])
    count++;
  json_set_words(request, "argv", (char *const *)argv, count);
  if (options && options->has_environment)
    json_set_words(request, "env", options->environment.items, options->environment.count);
  if (options && options->folder)
    json_set_path(request, "cwd", options->folder);
  return request;
}

static int open_input(const sb_options *options) {
  if (options && options->input)
    return api_memory_file(options->input, options->input_length);
  int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  return fd < 0 ? -errno : fd;
}

/* Sends the request with our ends of the pipes; theirs are closed here in any case. */
static int send_request(struct execution *execution, json_t *request, const sb_options *options,
                        struct sb_error *error) {
  int fds[1 + STREAM_COUNT] = {open_input(options), -1, -1};
  int result = fds[0] < 0 ? fds[0] : 0;
  for (int i = 0; result == 0 && i < STREAM_COUNT; i++) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) {
      result = -errno;
      continue;
    }
    execution->readers[i] = ends[0];
    fds[1 + i] = ends[1];
  }
  if (result < 0) {
    json_decref(request);
    sb_fail(error, SB_CODE_SYSTEM, -result, "making pipes");
  } else {
    result = client_send(&execution->connection, request, fds, 1 + STREAM_COUNT, error);
  }
  for (int i = 0; i < 1 + STREAM_COUNT; i++)
    close_fd(&fds[i]);
  return result < 0 ? -1 : 0;
}

static int handle_event(struct execution *execution, const json_t *message,
                        struct sb_error *error) {
  const char *event = json_string_value(json_object_get(message, "event"));
  if (!event)
    return 0;
  if (strcmp(event, "event.exited") == 0) {
    int status = (int)json_integer_value(json_object_get(message, "status"));
    execution->result->exit_code =
        WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    execution->over = true;
  } else if (strcmp(event, "event.failed") == 0) {
    int errnum = (int)json_integer_value(json_object_get(message, "errno"));
    sb_fail(error, errnum == ENOENT ? SB_CODE_NOT_FOUND : SB_CODE_SYSTEM, errnum,
            "the command cannot be executed");
    return sb_hint(error, "is it in the session's PATH, and is the folder visible inside?");
  }
  return 0;
}

static int read_events(struct execution *execution, struct sb_error *error) {
  do {
    json_t *message = NULL;
    if (client_read(&execution->connection, &message, error) < 0)
      return -1;
    int result = handle_event(execution, message, error);
    json_decref(message);
    if (result < 0)
      return -1;
  } while (!execution->over && client_has_message(&execution->connection));
  return 0;
}

static void read_stream(struct execution *execution, int which) {
  struct text *texts[STREAM_COUNT] = {&execution->result->output, &execution->result->errors};
  char buffer[65536];
  ssize_t got = read(execution->readers[which], buffer, sizeof buffer);
  if (got > 0)
    text_append_bytes(texts[which], buffer, (size_t)got);
  else if (got == 0 || (errno != EINTR && errno != EAGAIN))
    close_fd(&execution->readers[which]);
}

/* Until it has exited and what it wrote is read. What it left in the background may keep the pipes
 * open for ever: nobody waits for that. */
static int follow(struct execution *execution, struct sb_error *error) {
  for (;;) {
    struct pollfd watched[] = {
        {.fd = execution->readers[0], .events = POLLIN},
        {.fd = execution->readers[1], .events = POLLIN},
        {.fd = execution->over ? -1 : execution->connection.fd, .events = POLLIN}};
    int ready = poll(watched, ARRAY_SIZE(watched), execution->over ? 0 : -1);
    if (ready == 0 && execution->over)
      return 0;
    if (ready < 0)
      continue;
    for (int i = 0; i < STREAM_COUNT; i++)
      if (watched[i].revents)
        read_stream(execution, i);
    if (watched[2].revents && read_events(execution, error) < 0)
      return -1;
  }
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

sb_result *sb_session_exec(sb_session *session, const char *const argv[], const sb_options *options,
                           sb_error *error) {
  API_ERROR(error);
  struct execution execution = {
      .connection = {.fd = -1}, .result = api_result_new(), .readers = {-1, -1}};
  double began = now();
  int result = api_check_words(argv, error_);
  if (result == 0)
    result = client_open(session->folder, &execution.connection, error_);
  if (result == 0) {
    client_set_patience(&execution.connection, CLIENT_WAIT_FOREVER);
    result = send_request(&execution, exec_request(argv, options), options, error_);
  }
  if (result == 0)
    result = follow(&execution, error_);
  client_close(&execution.connection);
  close_fd(&execution.readers[0]);
  close_fd(&execution.readers[1]);
  execution.result->wall_time = now() - began;
  execution.result->session_id = xstrdup(session->id);
  if (result == 0)
    return execution.result;
  sb_result_free(execution.result);
  return NULL;
}

/* ---- about it ---- */

char *sb_session_stats(sb_session *session, sb_error *error) {
  API_ERROR(error);
  json_t *reply = NULL;
  if (client_call(session->folder, CLIENT_PATIENCE, json_pack("{s:s}", "cmd", "cmd.stats"), &reply,
                  error_) < 0)
    return NULL;
  char *text = json_dumps(reply, JSON_COMPACT);
  json_decref(reply);
  return text;
}

/* The connection ends with the session. */
static int await_end(struct client_connection *connection, int milliseconds) {
  double until = now() + milliseconds / 1000.0;
  char buffer[4096];
  for (;;) {
    int left = milliseconds < 0 ? -1 : (int)((until - now()) * 1000);
    struct pollfd watched = {.fd = connection->fd, .events = POLLIN};
    int ready = poll(&watched, 1, milliseconds >= 0 && left < 0 ? 0 : left);
    if (ready == 0)
      return 0;
    if (ready > 0) {
      ssize_t got = read(connection->fd, buffer, sizeof buffer);
      if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN))
        return 1;
    }
  }
}

int sb_session_kill(sb_session *session, int at_once, sb_error *error) {
  API_ERROR(error);
  _cleanup_client_ struct client_connection connection = {.fd = -1};
  if (client_open(session->folder, &connection, error_) < 0 ||
      client_send(&connection, json_pack("{s:s, s:b}", "cmd", "cmd.kill", "now", at_once), NULL, 0,
                  error_) < 0)
    return -1;
  client_set_patience(&connection, CLIENT_WAIT_FOREVER);
  await_end(&connection, -1);
  return 0;
}

int sb_session_wait(sb_session *session, int milliseconds, sb_error *error) {
  API_ERROR(error);
  _cleanup_client_ struct client_connection connection = {.fd = -1};
  if (client_open(session->folder, &connection, error_) < 0)
    return error_->code == SB_CODE_NOT_FOUND ? 1 : -1;
  return await_end(&connection, milliseconds);
}

/* ---- events ---- */

struct sb_events {
  struct client_connection connection;
};

sb_events *sb_events_open(sb_session *session, int observe, sb_error *error) {
  API_ERROR(error);
  sb_events *events = xcalloc(1, sizeof *events);
  json_t *reply = NULL;
  events->connection.fd = -1;
  if (client_open(session->folder, &events->connection, error_) < 0 ||
      client_send(&events->connection,
                  json_pack("{s:s, s:b}", "cmd", "cmd.watch", "observe", observe != 0), NULL, 0,
                  error_) < 0 ||
      client_read(&events->connection, &reply, error_) < 0) {
    sb_events_free(events);
    return NULL;
  }
  json_decref(reply);
  client_set_patience(&events->connection, CLIENT_WAIT_FOREVER);
  return events;
}

void sb_events_free(sb_events *events) {
  if (!events)
    return;
  client_close(&events->connection);
  free(events);
}

int sb_events_fd(const sb_events *events) {
  return events->connection.fd;
}

char *sb_events_next(sb_events *events, sb_error *error) {
  API_ERROR(error);
  json_t *message = NULL;
  if (client_read(&events->connection, &message, error_) < 0)
    return NULL;
  char *text = json_dumps(message, JSON_COMPACT);
  json_decref(message);
  return text;
}

int sb_events_send(sb_events *events, const char *command, sb_error *error) {
  API_ERROR(error);
  json_t *request = json_loads(command, JSON_REJECT_DUPLICATES, NULL);
  if (!json_is_object(request)) {
    json_decref(request);
    sb_fail(error_, SB_CODE_USAGE, 0, "the command is not a JSON object");
    return sb_hint(error_, "docs/PROTOCOL.md lists the commands");
  }
  return client_send(&events->connection, request, NULL, 0, error_);
}
